"""A partition proves its owner by what it commits, while the brokers say nothing of the owners' group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.runtime import coordinator as module
from sidecar.coordinator.runtime.lease_proofs import LeaseProofs
from sidecar.coordinator.statelog import fence as fence_module
from sidecar.coordinator.statelog import fenced_writer as writer_module
from sidecar.coordinator.statelog.term import Term, Terms
from sidecar.core.runtime import lease as lease_module
from sidecar.core.runtime.lease import PartitionLease
from sidecar.core.runtime.phases import Phase
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import Lease
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Stamp
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.broker import STATE
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, turns, until
from tests.inprocess.messages import assigned, beat, join

LEASE_MS = 400


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)
    monkeypatch.setattr(writer_module, "RETRY_S", 0.002)
    monkeypatch.setattr(fence_module, "RETRY_S", 0.002)


def run(test: Callable[[EmbeddedSidecar, LeaseProofs], Coroutine[Any, Any, None]], **given: Any) -> None:
    """A sidecar of two partitions, with shorter leases."""

    async def main() -> None:
        async with EmbeddedSidecar(**{"partitions": 2, "service": {"hold_ms": 0}, **given}) as sidecar:
            await sidecar.topics(orders=2)
            await test(sidecar, LeaseProofs(sidecar.service, sidecar.coordinator.takeovers.terms, LEASE_MS))

    clock.run(main())


async def member(sidecar: EmbeddedSidecar) -> tuple[EmbeddedClient, str, int]:
    """A member of a group of partition 0."""
    client = await sidecar.client()
    group_id = next(g for g in map(str, range(100)) if sidecar.service.partition_of(g) == 0)
    epoch = (await client.ask(join(group_id, "m1"), 1)).member_epoch
    res = await client.ask(beat(group_id, "m1", epoch), 1)
    await client.ask(beat(group_id, "m1", res.member_epoch, assigned(res)), 1)
    return client, group_id, res.member_epoch


def lapse(sidecar: EmbeddedSidecar) -> None:
    """The brokers have said nothing for longer than a lease."""
    sidecar.service.lease.lost()
    for front in sidecar.coordinator.fronts.connected.values():
        front.from_coordinator(Lease(0))


def take_over(sidecar: EmbeddedSidecar) -> None:
    """Another sidecar takes partition 0 over."""
    made = sidecar.brokers.init(f"{STATE}-0")
    claim = sidecar.codec.claim(Stamp(made.producer_id << 16 | made.epoch, 1), 2, "broker-2:1", "m-2", 9, "assigned")
    sidecar.brokers.append(STATE, 0, encode_batch([claim], 1, made.producer_id, made.epoch, 0))


async def heartbeat(client: EmbeddedClient, group_id: str, epoch: int) -> int:
    code: int = (await client.ask(beat(group_id, "m1", epoch), 1)).error_code
    return code


def test_members_are_answered_while_nobody_can_prove_the_lease() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        lapse(sidecar)
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR
        proofs.look()
        await until(lambda: sidecar.coordinator.leased())
        assert await heartbeat(client, group_id, epoch) == Code.NONE
        await asyncio.sleep(LEASE_MS / 1000 + 0.02)
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR, "a proof ends like a lease"

    run(test)


def test_a_partition_that_cannot_be_written_proves_nothing_and_the_others_go_on() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        writer = sidecar.coordinator.takeovers.terms[0].writer
        writer.append = lambda records, serial: None  # type: ignore[method-assign]
        lapse(sidecar)
        proofs.look()
        await until(lambda: sidecar.service.owners[1].lease.proved_until.mono_ms)
        assert sidecar.service.owners[0].lease.proved_until.mono_ms == 0 and not sidecar.coordinator.leased()
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR
        proofs.look()
        await turns()
        assert sidecar.service.owners[0].phase is Phase.SERVING, "the one that is under way goes on"

    run(test)


def test_who_was_shut_out_proves_nothing() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        take_over(sidecar)
        lapse(sidecar)
        proofs.look()
        await until(lambda: sidecar.service.owners[0].phase is not Phase.SERVING)
        assert sidecar.service.owners[0].lease.proved_until.mono_ms == 0
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR

    run(test)


def test_nothing_is_written_while_the_lease_lasts() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        before = len(sidecar.brokers.log().records)
        sidecar.prove(LEASE_MS)
        proofs.look()
        await turns()
        assert len(sidecar.brokers.log().records) == before

    run(test)


def test_after_a_missed_map_the_lease_counts_when_everything_served_is_proved() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        slow = sidecar.brokers.faults.delay(Api.PRODUCE, 0.1, times=1)
        sidecar.coordinator.owners_assigned(sidecar.coordinator.assignment, missed=True)
        sidecar.prove(LEASE_MS)
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR
        sidecar.coordinator.owners_assigned(sidecar.coordinator.assignment, missed=True)
        await until(lambda: slow.met)
        await until(lambda: not sidecar.service.lease.in_doubt)
        sidecar.prove(LEASE_MS)
        assert await heartbeat(client, group_id, epoch) == Code.NONE
        assert sidecar.service.owners[0].lifecycle.attempt == 1, "what is served goes on being served"

    run(test)


def test_after_a_missed_map_no_earlier_proof_counts() -> None:
    """The sidecar may say that it gave other partitions up, so the next owner of this one does not wait for its proofs
    of before."""

    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        lapse(sidecar)
        proofs.look()
        await until(lambda: sidecar.coordinator.leased())
        sidecar.service.owners[0].lease.unproved()
        proofs.look()  # a proof is under way when the map turns out to be missed
        for term in sidecar.coordinator.takeovers.terms.values():
            term.writer.append = lambda records, serial: None  # type: ignore[method-assign]
        proofs.map_missed()
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR
        await turns()
        proofs.look()
        assert sidecar.service.lease.in_doubt and not any(o.lease.valid(now()) for o in sidecar.service.owners)
        sidecar.service.lost("removed")
        assert not sidecar.service.lease.in_doubt

    run(test)


def test_after_a_missed_map_each_partition_is_served_when_it_is_proved() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        sidecar.coordinator.takeovers.terms[1].writer.append = lambda records, serial: None  # type: ignore[method-assign]
        proofs.map_missed()
        sidecar.prove(LEASE_MS)
        await until(lambda: sidecar.service.owners[0].lease.valid(now()))
        assert await heartbeat(client, group_id, epoch) == Code.NONE and sidecar.service.lease.in_doubt

    run(test)


def test_who_was_shut_out_by_the_missed_map_is_in_doubt_until_it_serves_no_more() -> None:
    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        take_over(sidecar)
        proofs.map_missed()
        sidecar.prove(LEASE_MS)
        assert await heartbeat(client, group_id, epoch) == Code.NOT_COORDINATOR
        await until(lambda: sidecar.service.owners[0].lifecycle.attempt == 2)
        proofs.look()
        assert not sidecar.service.lease.in_doubt

    run(test)


def test_what_a_member_gets_again_from_memory_is_proved_first() -> None:
    """The member may have given everything up at another owner, whose claim is not read yet."""

    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        full = join(group_id, "m1")
        full.member_epoch = epoch
        before = len(sidecar.brokers.log().records)
        res = await client.ask(full, 1)
        assert res.error_code == Code.NONE and assigned(res)
        assert len(sidecar.brokers.log().records) == before + 1
        take_over(sidecar)
        assert (await client.ask(full, 1)).error_code == Code.NOT_COORDINATOR

    run(test)


def test_a_proof_counts_from_when_its_write_began() -> None:
    """Another sidecar may have taken the partition over while the write was on its way back."""

    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        lapse(sidecar)
        slow = sidecar.brokers.faults.delay(Api.PRODUCE, 0.1, times=2)
        asked_ms = now().mono_ms
        proofs.look()
        began_ms = now().mono_ms
        await until(lambda: slow.met and all(o.lease.proved_until.mono_ms for o in sidecar.service.owners))
        assert now().mono_ms >= asked_ms + 90
        assert all(o.lease.proved_until.mono_ms <= began_ms + LEASE_MS for o in sidecar.service.owners)

    run(test)


def test_a_lost_proof_keeps_no_later_term_from_its_own() -> None:
    """Symptom: a term that ended with its proof was remembered by its address, and a later term at the same address was
    never proved."""

    class Writer:
        stopped = False

        def __init__(self, partition: int) -> None:
            self.partition = partition

        def append(self, records: object, serial: int) -> None:
            proved.append(self.partition)

        def stop(self) -> None:
            pass

    proved: list[int] = []
    lease, partitions = lease_module.Lease(), range(25)
    owners = [SimpleNamespace(partition=p, lease=PartitionLease(lease), proved=lambda a, u: None) for p in partitions]
    service = SimpleNamespace(lease=lease, owners=owners, serving=lambda: list(partitions))
    terms = Terms()
    proofs = LeaseProofs(cast(Any, service), terms, 15_000)
    for attempt in (1, 2):
        for p in partitions:
            terms[p] = Term(attempt, cast(Any, Writer(p)))
        lease.lost()
        proved.clear()
        proofs.look()
        assert proved == list(partitions)
        for p in partitions:
            terms.pop(p).stop()  # the proofs are lost
        lease.extended(now().mono_ms + 60_000)
        proofs.look()


def test_a_turn_that_breaks_between_a_write_and_a_proof_of_one_batch_ends_its_partition_only() -> None:
    """Symptom: the write answered a client, whose next request broke its turn and ended the term; then the proof was
    told to no term, and the whole coordinator ended."""

    async def test(sidecar: EmbeddedSidecar, proofs: LeaseProofs) -> None:
        client, group_id, epoch = await member(sidecar)
        term = sidecar.coordinator.takeovers.terms[0]
        slow = sidecar.brokers.faults.delay(Api.PRODUCE, 0.2)
        term.prove(lambda: None)
        await until(lambda: slow.met)
        client.post(beat(group_id, "m1", -1), 1)
        await turns()
        term.prove(lambda: None)
        shard = sidecar.service.owners[0].shard
        assert shard is not None
        handle = shard.handle

        def broken(event: Any, token: int, at: Any) -> Any:
            if getattr(event, "member_id", "") == "breaks":
                raise ZeroDivisionError
            return handle(event, token, at)

        shard.handle = broken  # type: ignore[method-assign, assignment]
        client.post(beat(group_id, "breaks", epoch), 1)
        await until(lambda: sidecar.service.owners[0].attempt > term.attempt)
        await until(lambda: sidecar.service.owners[0].phase is Phase.SERVING)
        assert not sidecar.tasks.failed.done()

    run(test)
