"""The fence is renewed while the partition is served: the state stays, writes wait, and a foreign claim is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from sidecar.coordinator.runtime import coordinator as module
from sidecar.coordinator.statelog import fence as fence_module
from sidecar.coordinator.statelog import fenced_writer as writer_module
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime import lifecycle
from sidecar.core.runtime.commands import Renew
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.errors import Code
from sidecar.state.batch import encode_batch
from sidecar.state.codec import OWNER_CLAIM, Stamp, owner_epoch_of
from sidecar.state.keys import decode_key
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.broker import STATE
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, until
from tests.inprocess.messages import beat, join


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)
    monkeypatch.setattr(writer_module, "RETRY_S", 0.002)
    monkeypatch.setattr(fence_module, "RETRY_S", 0.002)
    monkeypatch.setattr(lifecycle, "RENEW_AGAIN_MS", 20)


LEASE_MS = 15_000


def run(
    test: Callable[[EmbeddedSidecar, EmbeddedClient, int], Coroutine[Any, Any, None]], interval_ms: int = 3_600_000
) -> None:
    """A sidecar of one partition, with one member of group g, and its epoch."""

    async def main() -> None:
        async with EmbeddedSidecar(partitions=1, service={"fence_interval_ms": interval_ms}) as sidecar:
            await sidecar.topics(orders=2)
            client = await sidecar.client()
            res = await client.ask(join("g", "m"), 1)
            assert res.error_code == Code.NONE
            await sidecar.all_joined()
            await test(sidecar, client, res.member_epoch)

    clock.run(main())


def renew(sidecar: EmbeddedSidecar) -> None:
    sidecar.service.owners[0].lifecycle.renew()
    sidecar.coordinator._run_commands()


def claims(sidecar: EmbeddedSidecar) -> list[int]:
    keys = [decode_key(r.key) for r in sidecar.brokers.log().records]
    return [int(k.sub_id) for k in keys if k.kind == OWNER_CLAIM and int(k.sub_id) >= 0]


def test_the_state_stays_and_records_carry_the_new_epoch() -> None:
    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        owner = sidecar.service.owners[0]
        shard, attempt = owner.shard, owner.attempt
        renew(sidecar)
        await until(lambda: len(claims(sidecar)) == 2)
        assert (await client.ask(join("g", "n"), 1)).error_code == Code.NONE
        assert owner.shard is shard and owner.attempt == attempt
        last = sidecar.brokers.log().records[-1]
        assert last.value is not None and owner_epoch_of(last.value) == claims(sidecar)[-1]
        assert sidecar.metrics.value("void_records") == 0 and sidecar.lines.events("error") == []

    run(test)


def test_writes_wait_for_the_new_claim_and_heartbeats_do_not() -> None:
    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        hung = sidecar.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        renew(sidecar)
        await until(lambda: hung.met)
        assert (await client.ask(beat("g", "m", epoch), 1)).error_code == Code.NONE
        joining = await sidecar.client()
        joining.post(join("g", "n"), 1)
        await asyncio.sleep(0.02)
        assert not joining.waiting
        hung.release()
        assert (await joining.answer(join("g", "n"), 1)).error_code == Code.NONE
        kinds = [decode_key(r.key).kind for r in sidecar.brokers.log().records]
        assert kinds.index("member", kinds.index(OWNER_CLAIM) + 1) >= 0 and kinds[-1] != OWNER_CLAIM

    run(test)


@pytest.mark.parametrize("renewed", [True, False])
def test_what_was_written_meanwhile_is_in_the_log_whatever_becomes_of_the_fence(
    monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    """An answer may leave with a later write: that the record is there says only the log."""
    monkeypatch.setattr(fence_module, "INIT_S", 0.01)

    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        hung = sidecar.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        renew(sidecar)
        await until(lambda: hung.met)
        joining = await sidecar.client()
        joining.post(join("g", "n"), 1)
        await until(lambda: sidecar.coordinator.takeovers.terms[0].later)
        if not renewed:
            sidecar.brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.INVALID_PRODUCER_EPOCH, times=10_000)
            hung.end()
        hung.release()
        assert (await joining.answer(join("g", "n"), 1)).error_code == Code.NONE
        keys = [decode_key(r.key) for r in sidecar.brokers.log().records]
        assert ("member", "g", "n") in [tuple(k) for k in keys]
        if renewed:
            last_claim = max(i for i, k in enumerate(keys) if k.kind == OWNER_CLAIM and int(k.sub_id) >= 0)
            assert [tuple(k) for k in keys].index(("member", "g", "n")) > last_claim

    run(test)


def test_a_fence_that_cannot_be_renewed_goes_on_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_module, "INIT_S", 0.01)

    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        refused = sidecar.brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.COORDINATOR_NOT_AVAILABLE, times=10_000)
        shard = sidecar.service.owners[0].shard
        renew(sidecar)
        await until(lambda: "the fence is not renewed, trying again" in sidecar.lines.events("warning"))
        assert (await client.ask(join("g", "n"), 1)).error_code == Code.NONE
        assert sidecar.service.owners[0].shard is shard and len(claims(sidecar)) == 1
        refused.end()

    run(test)


def test_a_claim_of_somebody_else_in_between_ends_it() -> None:
    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        shard = sidecar.service.owners[0].shard
        sidecar.tail.hold()
        made = sidecar.brokers.init(f"{STATE}-0")
        claim = sidecar.codec.claim(Stamp(made.producer_id << 16 | made.epoch, 1), 2, "b:1", "x", 1, "took over")
        assert sidecar.brokers.append(STATE, 0, encode_batch([claim], 1, made.producer_id, made.epoch, 0))[0] == 0
        renew(sidecar)
        await until(lambda: len(claims(sidecar)) == 3)
        sidecar.tail.release()
        await until(lambda: "shard dropped" in sidecar.lines.events("error"))
        await until(lambda: sidecar.service.owners[0].shard not in (None, shard))
        assert (await client.ask(beat("g", "m", epoch), 1)).error_code == Code.NONE

    run(test)


def test_it_ends_with_the_partition() -> None:
    async def test(sidecar: EmbeddedSidecar, client: EmbeddedClient, epoch: int) -> None:
        hung = sidecar.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        renew(sidecar)
        await until(lambda: hung.met)
        sidecar.assign(2)
        hung.release()
        await sidecar.own()
        assert (await (await sidecar.client()).ask(beat("g", "m", epoch), 1)).error_code == Code.NONE
        assert sidecar.lines.events("error") == []

    run(test)


def renewals(until_s: int, fences_kept_ms: int | None = None, silent: range = range(0)) -> list[tuple[int, int]]:
    """(second, partition) of fifty that are served, and renewed by the hour. In the `silent` seconds the owners' group
    has no coordinator."""
    settings = ServiceSettings(fence_interval_ms=3_600_000, fence_spread=0.5)
    registry: Registry = REGISTRY

    class EmptyTail:
        def groups(self, partition: int) -> list[str]:
            return []

        def size(self, partition: int, group_id: str) -> int:
            return 0

        def records(self, partition: int, group_id: str) -> Any:
            return iter(())

    service = Service(1, 50, registry, Ports({}, Computed(lambda kind, group_id: None)), EmptyTail(), settings)
    service.lease.extended(LEASE_MS)
    service.assigned([1] * 50, 1, {1}, Now(0, 0))
    for owner in service.owners:
        owner.lifecycle.fenced(owner.attempt, 7, Now(0, 0))
        owner.lifecycle.claimed(owner.attempt, 0, Now(0, 0))
        owner.replayed(owner.attempt, Now(0, 0))
    service.config_changed(Now(0, 0), fences_kept_ms)
    service.out.clear()
    found, last_answer = [], 0
    for second in range(1, until_s):
        now = Now(1_000 * second, 1_000 * second)
        last_answer = now.mono_ms if second not in silent else last_answer
        service.lease.extended(last_answer + LEASE_MS)  # the same answer is told again and again
        service.wake(now)
        for c in [c for c in service.out if isinstance(c, Renew)]:
            found.append((second, c.partition))
            service.owners[c.partition].lifecycle.renewed(c.attempt, 8, now)
        service.out.clear()
    return found


def test_partitions_are_renewed_one_after_the_other() -> None:
    at: dict[int, int] = {}
    for second, partition in renewals(3_700):
        at.setdefault(partition, second)
    assert len(at) == 50 and 1_800 <= min(at.values()) < max(at.values()) <= 3_601
    times = sorted(at.values())
    assert min(b - a for a, b in pairwise(times)) > 10


def test_brokers_that_soon_forget_are_told_more_often() -> None:
    """`transactional.id.expiration.ms` of a minute: a fence is never older than a quarter of that."""
    last = dict.fromkeys(range(50), 0)
    for second, partition in renewals(200, fences_kept_ms=60_000):
        assert second - last[partition] <= 16
        last[partition] = second
    assert min(last.values()) >= 184


def test_no_fence_is_renewed_while_the_owners_group_gives_no_answer() -> None:
    """A renewal may wait for the same dead broker, and the partition could not prove its owner meanwhile."""
    silent = range(2_400, 2_412)
    behind = sorted(second for second, _ in renewals(2_500, silent=silent))
    assert [s for s in behind if s < silent.start] and not [s for s in behind if s in silent]
    assert behind.count(silent.stop) > 1 or silent.stop in behind
