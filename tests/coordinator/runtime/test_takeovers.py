"""The last claim in the log says who owns a partition. It counts whatever the fence says: brokers forget fences."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.coordinator.runtime import coordinator as module
from sidecar.coordinator.statelog import fence as fence_module
from sidecar.coordinator.statelog import fence_renewal as renewal
from sidecar.coordinator.statelog import fenced_writer as writer_module
from sidecar.coordinator.statelog.fenced_writer import FencedWriter
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.term import Term
from sidecar.coordinator.statelog.write_errors import Fenced
from sidecar.core.runtime import lifecycle
from sidecar.core.runtime.phases import Phase
from sidecar.core.vocabulary.errors import Code
from sidecar.state.fold import Claims
from sidecar.wire.apis import Api
from tests.coordinator.runtime.test_coordinator import claims, member, other_sidecar, phase
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, run, turns, until
from tests.inprocess.messages import beat

SOON_S = 3.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)
    monkeypatch.setattr(writer_module, "RETRY_S", 0.002)
    monkeypatch.setattr(fence_module, "RETRY_S", 0.002)
    monkeypatch.setattr(lifecycle, "RETRY_MS", 5)


def test_whoever_is_not_the_last_to_claim_does_not_serve() -> None:
    """Another sidecar claims between this one's claim and its replay."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.hold_tail()
        sidecar.prove()
        sidecar.assign(1)
        await until(lambda: phase(sidecar) is Phase.REPLAYING)
        attempt = sidecar.service.owners[0].attempt
        other_sidecar(sidecar)
        sidecar.tail.release()
        await until(lambda: sidecar.service.owners[0].attempt > attempt, SOON_S)
        await until(lambda: phase(sidecar) is Phase.SERVING)
        assert [c["node_id"] for c in claims(sidecar)] == [1, 2, 1]

    clock.run(whole_without_serving(test))


async def whole_without_serving(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]]) -> None:
    async with EmbeddedSidecar(partitions=1, serve=False) as sidecar:
        await test(sidecar)


def test_nothing_is_served_before_the_map_is_confirmed() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.map_is_newest = False
        sidecar.prove()
        sidecar.assign(1)
        await until(lambda: phase(sidecar) is Phase.REPLAYING)
        await turns()
        assert phase(sidecar) is Phase.REPLAYING and len(claims(sidecar)) == 1
        sidecar.confirm()
        await until(lambda: phase(sidecar) is Phase.SERVING)

    clock.run(whole_without_serving(test))


def test_a_sidecar_that_was_shut_out_leaves_the_partition_alone_until_its_map_is_confirmed() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await member(sidecar, client)
        await sidecar.all_joined()
        sidecar.map_is_newest = False
        other_sidecar(sidecar)
        await until(lambda: phase(sidecar) is Phase.FENCING, SOON_S)
        fences = sidecar.brokers.count(Api.INIT_PRODUCER_ID)
        await turns()
        sidecar.assign(2)
        sidecar.confirm()
        await turns()
        assert sidecar.brokers.count(Api.INIT_PRODUCER_ID) == fences
        assert phase(sidecar) is Phase.ELSEWHERE

    run(test)


def test_a_claim_of_another_ends_the_service_though_nothing_is_written() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await member(sidecar, client)
        await sidecar.all_joined()
        other_sidecar(sidecar)
        await until(lambda: "shard dropped" in sidecar.lines.events("error"), SOON_S)
        assert (await client.ask(beat("g", "m1", epoch), 1)).error_code in (Code.NONE, Code.NOT_COORDINATOR)
        await until(lambda: phase(sidecar) is Phase.SERVING)
        assert [c["node_id"] for c in claims(sidecar)][-2:] == [2, 1]

    run(test)


@pytest.mark.parametrize(
    ("said", "ours"),
    [((7, 8), True), ((7, 9), False), ((9, 8), False), ((-1, 8), False)],
    ids=["directly behind ours", "behind another", "another in between", "ours is gone"],
)
def test_a_renewed_fence_counts_only_directly_behind_our_own_claim(said: tuple[int, int], ours: bool) -> None:
    """The check itself notices the other claim, and does not rely on the tail's report of it."""
    writers = [cast(FencedWriter, SimpleNamespace(owner_epoch=e, place="state-0")) for e in (7, 8)]
    state = cast(StateLog, SimpleNamespace(partitions=[SimpleNamespace(owners=Claims(said[1], said[0]))]))
    if ours:
        renewal._check(0, Term(1, writers[0]), writers[1], state)
    else:
        with pytest.raises(Fenced):
            renewal._check(0, Term(1, writers[0]), writers[1], state)
