"""Whether the tail has read all that was written before a question: a sidecar that cannot say so lets nobody join."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.coordinator.statelog import read_index
from sidecar.coordinator.statelog.read_index import ReadIndex, acknowledged_before
from sidecar.core.runtime.events import Answer
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.group_config import GROUP
from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.cluster import ClusterView, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.link.messages import AlterSettings, CheckGroupIsBrokers, Reply, Request, SettingChange
from sidecar.wire.apis import Api
from sidecar.wire.generated import list_offsets as lo
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, turns, until

ORDER = AlterSettings("", (SettingChange(GROUP, "x", {cf.MANAGED: "true"}),), validate_only=False, client="h")
WHOSE = CheckGroupIsBrokers("", name="x")


def run(test: Callable[[EmbeddedSidecar, RecordingFront], Coroutine[Any, Any, None]]) -> None:
    """A sidecar whose settings name other groups, and a front that asks it."""

    async def main() -> None:
        async with EmbeddedSidecar(managed=lambda group_id: group_id.startswith("g")) as sidecar:
            await test(sidecar, RecordingFront(sidecar.coordinator))

    clock.run(main())


async def ordered(sidecar: EmbeddedSidecar, front: RecordingFront, token: int) -> None:
    """The order is in the log. It is answered when the tail has read it."""
    before = sidecar.brokers.count(Api.PRODUCE)
    front.send(Request(token, ORDER))
    await until(lambda: sidecar.brokers.count(Api.PRODUCE) > before)
    await turns()


def answered(front: RecordingFront) -> set[int]:
    return {r.token for r in front.of(Reply)}


def test_a_tail_that_is_behind_says_nothing_until_it_has_read_everything() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, WHOSE))
        assert (await front.reply(1)).code == Code.NONE and not sidecar.rules.managed("x")
        sidecar.tail.hold()
        await ordered(sidecar, front, 2)
        front.send(Request(3, WHOSE))
        await asyncio.sleep(0.05)
        assert 3 not in answered(front) and not sidecar.rules.managed("x")
        sidecar.tail.release()
        assert (await front.reply(3)).code == Code.NONE and sidecar.rules.managed("x")

    run(test)


def test_it_waits_only_so_long() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.tail.hold()
        await ordered(sidecar, front, 1)
        front.send(Request(2, WHOSE))
        assert await front.reply(2) == Answer(Code.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")

    run(test)


def test_who_comes_while_a_leader_is_asked_has_it_asked_again() -> None:
    """The answer to the first question may be older than the new requests. All requests that come meanwhile share one
    question."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        hung = sidecar.brokers.faults.hang(Api.LIST_OFFSETS, times=10)
        front.send(Request(1, WHOSE))
        await turns()
        asked = sidecar.brokers.count(Api.LIST_OFFSETS)
        for token in (2, 3, 4):
            front.send(Request(token, WHOSE))
        await turns()
        assert sidecar.brokers.count(Api.LIST_OFFSETS) == asked > 0 and answered(front) == set()
        hung.release()
        assert {(await front.reply(token)).code for token in (1, 2, 3, 4)} == {Code.NONE}
        assert sidecar.brokers.count(Api.LIST_OFFSETS) == 2 * asked

    run(test)


def test_a_leader_that_has_moved_is_looked_for() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        refused = sidecar.brokers.faults.fail(Api.LIST_OFFSETS, Code.NOT_LEADER_OR_FOLLOWER, times=8)
        front.send(Request(1, WHOSE))
        assert (await front.reply(1)).code == Code.NONE and refused.met == 8

    run(test)


class CutOff:
    """Brokers 1 and 2, of which 1 led the partition in epoch 3, has not heard of a later one, and still answers."""

    asked: tuple[int, int] = (-1, -1)
    """The broker that was asked last, and the leader epoch in the question."""

    async def refresh(self, topics: list[str]) -> ClusterView:
        return leads(1, 3)

    async def lane(self, node: int, lane: Lane) -> Any:
        async def request(module: Any, name: str, req: lo.ListOffsetsRequest, **how: Any) -> lo.ListOffsetsResponse:
            self.asked = node, req.topics[0].partitions[0].current_leader_epoch
            code = Code.UNKNOWN_LEADER_EPOCH if self.asked[1] > {1: 3, 2: 4}[node] else Code.NONE
            part = lo.ListOffsetsPartitionResponse(0, code, offset=10 * node)
            return lo.ListOffsetsResponse(topics=[lo.ListOffsetsTopicResponse("t", [part])])

        return SimpleNamespace(request=request)

    async def replicas(self, topic: str) -> list[tuple[int, ...]]:
        raise ConnectionLost("the replicas are asked")


def leads(node: int, epoch: int) -> ClusterView:
    return ClusterView(leaders={"t": (node,)}, epochs={"t": (epoch,)}, topics=(Topic(b"t" * 16, "t", ((),)),))


def test_a_leader_that_was_replaced_vouches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: an old leader, cut off from the controller and its followers, told its old high watermark for ever."""

    async def no_configs(cluster: Any, topic: str) -> dict[str, str]:
        return {}

    monkeypatch.setattr(read_index, "read_configs", no_configs)

    async def test() -> None:
        brokers = CutOff()
        index = ReadIndex(cast(Any, brokers), "t", cast(Any, None), 1.0, cast(Any, None))
        assert (await index._end_of_log(0), brokers.asked) == (10, (1, 3))
        index.leaders.take(leads(2, 4))
        assert (await index._end_of_log(0), brokers.asked) == (20, (2, 4))
        index.leaders.take(leads(1, 5))
        for _ in range(2):  # the second time it has asked for the leaders, and got the old one
            with pytest.raises(ConnectionLost, match="the replicas are asked"):
                await index._end_of_log(0)
            assert brokers.asked == (1, 5)

    clock.run(test())


@pytest.mark.parametrize(
    ("ends", "replicas", "min_isr", "before"),
    [
        ([5, 5, 5], 3, 2, 5),
        ([9, 5, 5], 3, 2, 5),  # one has what no other one has: that is not acknowledged
        ([9, 5], 3, 2, 9),  # the third one may have it, too
        ([5], 3, 2, None),  # the other two may have more
        ([7, 6, 5], 3, 3, 5),
        ([7, 6], 3, 3, 6),
        ([7], 3, 3, 7),
        ([7, 5, 5], 3, 1, 7),  # one alone can acknowledge
        ([7, 5], 3, 1, None),
        ([4], 1, 1, 4),
        ([], 1, 1, None),
        ([], 0, 2, None),
        ([5, 4, 4, 4], 4, 9, 4),  # more than there are: nothing is acknowledged at all
    ],
)
def test_what_some_replicas_tell_of_acknowledged_records(
    ends: list[int], replicas: int, min_isr: int, before: int | None
) -> None:
    assert acknowledged_before(ends, replicas, min_isr) == before
