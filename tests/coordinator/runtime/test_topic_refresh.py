"""A topic made a moment ago is there: for a member that joins, by name and by pattern, and for one that is there."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from sidecar.coordinator.runtime.topic_refresh import ALL, TopicRefresh
from sidecar.core.vocabulary.errors import Code
from sidecar.link.loopback import IN_A_ROW
from sidecar.link.messages import TopicsPassed
from sidecar.link.turn_queue import TurnQueue
from sidecar.proxy.internal import Passing
from sidecar.wire.apis import Api
from tests.coordinator.runtime.watched import Bench, run
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, EmbeddedClient, until
from tests.inprocess.messages import assigned, beat, join

pytestmark = pytest.mark.tier("test")

REFRESH: dict[str, Any] = {"metadata_refresh_s": 2.0, "broker_gone_s": 20.0}
"""As `metadata_refresh_ms` is by default, and without a fault that the tests do not mean."""
SOON_S = 0.3
HEARTBEAT_S = 1.0


async def served(b: Bench) -> EmbeddedClient:
    await until(lambda: b.sidecar.service.serving() == [0, 1])
    return await b.sidecar.client()


async def joined(client: EmbeddedClient, pattern: bool, group: str = "g") -> Any:
    return await client.ask(join(group, "m1", None if pattern else ["orders"], "ord.*" if pattern else None), 1)


async def beats(client: EmbeddedClient, reply: Any, count: int) -> dict[bytes, list[int]]:
    """Sends `count` heartbeats at their interval. Returns the member's assignment after them."""
    owned, epoch = assigned(reply), reply.member_epoch
    for _ in range(count):
        await asyncio.sleep(HEARTBEAT_S)
        reply = await client.ask(beat("g", "m1", epoch, owned), 1)
        assert reply.error_code == Code.NONE
        owned, epoch = assigned(reply) if reply.assignment is not None else owned, reply.member_epoch
    return owned


async def pass_s(s: float) -> None:
    end_s = time.monotonic() + s
    await until(lambda: time.monotonic() >= end_s, s + 1)


def looks(b: Bench) -> list[list[str] | None]:
    """The names that each Metadata request was for; None: all topics."""
    asked = b.brokers.requests(Api.METADATA)
    return [None if r.topics is None else [t.name for t in r.topics] for r in asked]


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("before_s", [0.0, 0.1, 0.5, 1.0, 4.0])
def test_a_topic_made_before_a_join_is_in_its_answer(
    monkeypatch: pytest.MonkeyPatch, before_s: float, pattern: bool
) -> None:
    """Symptom: it was there 2.2 s later by name, and 11.6 s later by pattern. Cause: the list was read every 2 s, and a
    pattern that was matched against it was not matched again for 10 s."""

    async def test(b: Bench) -> None:
        client = await served(b)
        made = b.brokers.add_topic("orders", 3)
        await asyncio.sleep(before_s)
        began_s = time.monotonic()
        reply = await joined(client, pattern)
        assert assigned(reply) == {made.topic_id: [0, 1, 2]}
        assert time.monotonic() - began_s < SOON_S

    run(test, monkeypatch, **REFRESH)


def test_the_first_member_raises_the_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a group's first member had a higher epoch than at Kafka where the topic was made just before. Cause: it
    joined with nothing, and the topic was found afterwards."""

    def epoch(made_s: float) -> int:
        async def test(b: Bench) -> None:
            client = await served(b)
            b.brokers.add_topic("orders", 3)
            await asyncio.sleep(made_s)
            epochs.append((await joined(client, pattern=False)).member_epoch)

        epochs: list[int] = []
        run(test, monkeypatch, **REFRESH)
        return epochs[0]

    assert epoch(0.0) == epoch(4.0)


@pytest.mark.parametrize("pattern", [False, True])
def test_a_topic_made_after_a_join_comes_with_the_next_heartbeat_that_can_tell(
    monkeypatch: pytest.MonkeyPatch, pattern: bool
) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        if pattern:
            b.brokers.add_topic("ordinary", 1)
        reply = await joined(client, pattern)
        await asyncio.sleep(3.0)
        made = b.brokers.add_topic("orders", 3)
        b.front.send(TopicsPassed())
        assert (await beats(client, reply, 2)).get(made.topic_id) == [0, 1, 2]

    run(test, monkeypatch, **REFRESH)


def test_a_pattern_is_matched_against_new_topics_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka matches once in 10 s, and has `regex_matches` 1. More would be a load that whoever makes topics decides
    on."""

    async def test(b: Bench) -> None:
        client = await served(b)
        reply = await joined(client, pattern=True)
        made = []
        for n in range(4):
            made.append(b.brokers.add_topic(f"orders-{n}", 1).topic_id)
            b.front.send(TopicsPassed())
            await asyncio.sleep(0.5)
        owned = await beats(client, reply, 2)
        assert set(owned) == set(made[:2]), "the first match was that of the join"
        await asyncio.sleep(10.0)
        reply = await client.ask(join("g", "m1", None, "ord.*"), 1)
        assert set(await beats(client, reply, 2)) == set(made)

    run(test, monkeypatch, **REFRESH)


def test_a_topic_that_was_made_anew_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has it by name; that it is another one now was seen when the requests for that passed."""

    async def test(b: Bench) -> None:
        client = await served(b)
        b.brokers.add_topic("orders", 3)
        await until(lambda: "orders" in b.sidecar.service.owners[0].image.by_name)
        made = b.brokers.add_topic("orders", 2)
        made.topic_id = b"\7" * 16
        b.front.send(TopicsPassed())
        assert assigned(await joined(client, pattern=False)) == {made.topic_id: [0, 1]}

    run(test, monkeypatch, **REFRESH)


def test_partitions_that_were_added_through_us_come_with_the_next_heartbeat_that_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        made = b.brokers.add_topic("orders", 3)
        reply = await joined(client, pattern=False)
        made.leaders += [1, 1]
        b.front.send(TopicsPassed())
        assert await beats(client, reply, 2) == {made.topic_id: [0, 1, 2, 3, 4]}

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


LAG_S = 0.03
"""The broker hears so long after the client that topics have changed."""


@pytest.mark.parametrize("change", ["grown", "made anew"])
@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("after_s", [0.0, LAG_S - 0.01, LAG_S + 0.01, 0.09])
def test_the_first_heartbeat_after_a_change_has_it(
    monkeypatch: pytest.MonkeyPatch, change: str, pattern: bool, after_s: float
) -> None:
    """Symptom: of a topic that was grown or made anew 3 s after a join a member heard two heartbeats later than at
    Kafka. Cause: its heartbeat came while the list was looked at, and was answered by the old one, or by one that had
    no such topic."""

    async def test(b: Bench) -> None:
        client = await served(b)
        made = b.brokers.add_topic("orders", 2)
        reply = await joined(client, pattern)
        owned, epoch = assigned(reply), reply.member_epoch
        await pass_s(3.0)
        steady = await client.ask(beat("g", "m1", epoch, owned), 1)
        assert steady.member_epoch == epoch and steady.assignment is None
        if change == "made anew":
            del b.brokers.topics["orders"]
            pass_change(b)
            await pass_s(LAG_S)
        pass_change(b)
        asyncio.get_running_loop().call_later(LAG_S, grow_or_make, b, made.topic_id, change)
        await pass_s(after_s)
        began_s = time.monotonic()
        reply = await client.ask(beat("g", "m1", epoch, owned), 1)
        assert time.monotonic() - began_s < SOON_S
        if change == "made anew":
            assert reply.assignment is not None and assigned(reply) == {}, "the old one is given up first"
            reply = await client.ask(beat("g", "m1", epoch, {}), 1)
        assert assigned(reply) == {b.brokers.topics["orders"].topic_id: [0, 1, 2, 3]}
        assert reply.member_epoch == epoch + 1

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def pass_change(b: Bench) -> None:
    """An answer to a request that may have changed topics passes through the front of the members."""
    change = b.sidecar.front.server.internal.marker(Api.CREATE_TOPICS, 7)
    assert isinstance(change, Passing)
    change.take(b"", True)


def grow_or_make(b: Bench, topic_id: bytes, change: str) -> None:
    b.brokers.add_topic("orders", 4).topic_id = topic_id if change == "grown" else b"\7" * 16


def image_has(b: Bench, topic_id: bytes) -> bool:
    return topic_id in b.sidecar.service.owners[0].image.by_id


def test_a_broker_that_hears_late_of_a_change_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: on a loaded machine members heard of new partitions an interval later than at Kafka, after the next
    refresh. A change that changes nothing costs a few looks."""

    async def test(b: Bench) -> None:
        await served(b)
        for lag_s in (0.15, 0.5):
            pass_change(b)
            await pass_s(lag_s)
            made = b.brokers.add_topic(f"orders-{lag_s}", 2)
            began_s = time.monotonic()
            await until(partial(image_has, b, made.topic_id))
            assert time.monotonic() - began_s <= lag_s + SOON_S
            await pass_s(2.0)
        before = len(looks(b))
        pass_change(b)
        await pass_s(10.0)
        assert len(looks(b)) - before == 5

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_peers_are_told_as_often_as_this_sidecar_looks_because_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await served(b)
        told: list[float] = []
        b.sidecar.coordinator.fresh.notify_peers = lambda: told.append(time.monotonic())
        before, began_s = len(looks(b)), time.monotonic()
        for _ in range(100):
            b.front.send(TopicsPassed())
            await pass_s(0.01)
        await pass_s(SOON_S)
        assert told[-1] - began_s > 1.0, "and when the last change has surely reached the brokers"
        assert 5 <= len(told) <= len(looks(b)) - before

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_a_change_that_a_peer_tells_of_is_looked_at_and_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        told: list[float] = []
        b.sidecar.coordinator.fresh.notify_peers = lambda: told.append(time.monotonic())
        made = b.brokers.add_topic("orders", 2)
        reply = await joined(client, pattern=False)
        await pass_s(3.0)
        made.leaders += [1, 1]
        b.watch.topics_changed()
        reply = await client.ask(beat("g", "m1", reply.member_epoch, assigned(reply)), 1)
        assert assigned(reply) == {made.topic_id: [0, 1, 2, 3]}
        assert told == [], "it would go round for ever"

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_heartbeats_wait_for_no_look_when_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        b.brokers.add_topic("orders", 2)
        reply = await joined(client, pattern=False)
        for _ in range(5):
            b.front.send(TopicsPassed())
            await pass_s(2.0)
            looked = len(looks(b))
            assert (await client.ask(beat("g", "m1", reply.member_epoch, assigned(reply)), 1)).error_code == Code.NONE
            assert len(looks(b)) == looked
        assert looks(b).count(None) <= 2 + 5 * 5

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_the_broker_hears_of_a_change_a_little_later_than_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await served(b)
        b.front.send(TopicsPassed())
        asked = b.brokers.count(Api.METADATA)
        await until(lambda: b.brokers.count(Api.METADATA) > asked)
        b.brokers.add_topic("orders", 3)
        began_s = time.monotonic()
        await until(lambda: "orders" in b.sidecar.service.owners[0].image.by_name)
        assert time.monotonic() - began_s < SOON_S

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


# ---- what it may cost
def test_a_missing_topic_is_looked_up_once_and_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        reply = await joined(client, pattern=False)
        request = beat("g", "m1", reply.member_epoch)
        request.subscribed_topic_names = ["orders"]
        for _ in range(50):
            assert (await client.ask(request, 1)).error_code == Code.NONE
        assert [names for names in looks(b) if names == ["orders"]] == [["orders"]]
        request.subscribed_topic_names = ["orders", "bills"]
        for _ in range(50):
            assert (await client.ask(request, 1)).error_code == Code.NONE
        assert [names for names in looks(b) if names == ["bills"]] == [["bills"]]
        assert looks(b).count(None) == 1, "all topics were read at the start only"

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


@pytest.mark.parametrize("pattern", [False, True])
def test_members_that_join_at_once_share_a_look(monkeypatch: pytest.MonkeyPatch, pattern: bool) -> None:
    async def test(b: Bench) -> None:
        await served(b)
        before = b.brokers.count(Api.METADATA)
        clients = [await b.sidecar.client() for _ in range(50)]
        await asyncio.gather(*(joined(c, pattern, f"g{n}") for n, c in enumerate(clients)))
        assert b.brokers.count(Api.METADATA) - before <= 3

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_looks_keep_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """`metadata_look_ms`."""

    async def test(b: Bench) -> None:
        client = await served(b)
        before, began_s = b.brokers.count(Api.METADATA), time.monotonic()
        for n in range(50):
            assert (await client.ask(join(f"g{n}", "m1", [f"missing-{n}"]), 1)).error_code == Code.NONE
        took_s = time.monotonic() - began_s
        assert b.brokers.count(Api.METADATA) - before <= took_s / 0.1 + 1

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 600.0})


def test_a_member_that_names_very_many_missing_topics_has_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        made = b.brokers.add_topic("orders", 1)
        names = ["orders", *(f"missing-{n}" for n in range(200))]
        assert assigned(await client.ask(join("g", "m1", names), 1)) == {made.topic_id: [0]}
        assert max(len(names or ()) for names in looks(b)) <= 100

    run(test, monkeypatch, **REFRESH)


@pytest.mark.parametrize("pattern", [False, True])
def test_an_answer_waits_no_longer_for_a_look_than_join_wait_ms(monkeypatch: pytest.MonkeyPatch, pattern: bool) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        b.brokers.faults.hang(Api.METADATA)
        began_s = time.monotonic()
        reply = await joined(client, pattern)
        assert reply.error_code == Code.NONE
        assert 0.4 < time.monotonic() - began_s < 1.1
        assert b.sidecar.metrics.value("topic_looks", "late") == 1

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_a_look_that_fails_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        client = await served(b)
        b.brokers.faults.drop(Api.METADATA)
        began_s = time.monotonic()
        assert (await joined(client, pattern=False)).error_code == Code.NONE
        assert time.monotonic() - began_s < SOON_S
        assert b.sidecar.metrics.value("topic_looks", "late") == 0

    run(test, monkeypatch, **{**REFRESH, "metadata_refresh_s": 60.0})


def test_requests_that_waited_for_one_look_go_on_in_slices() -> None:
    """Symptom: after a look all heartbeats that had waited for it went on in one call."""

    async def main() -> None:
        went_on: list[int] = []
        turn_queue = TurnQueue(asyncio.get_running_loop().call_soon)
        fresh = TopicRefresh(0.0, turn_queue, Counted())
        fresh.served = True
        for i in range(3 * IN_A_ROW):
            fresh.look(ALL, partial(went_on.append, i))
        await fresh.during(asyncio.sleep(0))
        assert not went_on
        for slices in range(1, 4):
            await asyncio.sleep(0)
            assert went_on == list(range(slices * IN_A_ROW))

    clock.run(main())
