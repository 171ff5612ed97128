"""Turns whose records are more than a batch, and requests that would make a single record greater than that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.coordinator.runtime import coordinator as module
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import join_group as jg
from tests.coordinator import writing
from tests.coordinator.writing import Bench, record
from tests.inprocess import clock
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, turns, until
from tests.inprocess.messages import assigned, beat, join

BATCH_BYTES = 4_000
MEMBERS = 40


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)


def run(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]]) -> None:
    """A sidecar of one partition whose batches are small, with the topic `orders`."""

    async def main() -> None:
        async with EmbeddedSidecar(
            partitions=1, batch_bytes=BATCH_BYTES, consumer={"assignment_interval_ms": 50}
        ) as sidecar:
            await sidecar.topics(orders=2 * MEMBERS)
            await test(sidecar)

    clock.run(main())


async def settled(sidecar: EmbeddedSidecar, client: EmbeddedClient) -> dict[str, tuple[int, Any]]:
    """Member id -> epoch and partitions, when nothing changes any more."""
    known: dict[str, tuple[int, Any]] = {}
    for i in range(MEMBERS):
        res = await client.ask(join("g", f"m{i}"), 1)
        assert res.error_code == Code.NONE
        known[f"m{i}"] = (res.member_epoch, assigned(res))
    for _ in range(20):
        await asyncio.sleep(0.06)
        before = dict(known)
        for m, (epoch, owned) in before.items():
            res = await client.ask(beat("g", m, epoch, owned), 1)
            assert res.error_code == Code.NONE
            known[m] = (res.member_epoch, assigned(res) if res.assignment is not None else owned)
        if known == before and sum(len(ps) for _, own in known.values() for ps in own.values()) == 2 * MEMBERS:
            return known
    raise AssertionError("it never settles")


def test_a_target_of_many_batches_is_given_out_and_taken_over_whole() -> None:
    """Symptom: MESSAGE_TOO_LARGE dropped the shard, the rebuilt one computed the same target, and so on."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        known = await settled(sidecar, client)
        large = [b for b in sidecar.brokers.log().batches if b.transactional]
        assert len(large) > 1 and sidecar.brokers.count(Api.END_TXN) >= 1
        group = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert isinstance(group, ConsumerGroup)
        await sidecar.all_joined()
        sidecar.assign(2)
        await sidecar.own()
        for m, (epoch, owned) in known.items():
            res = await (await sidecar.client()).ask(beat("g", m, epoch, owned), 1)
            assert (res.error_code, res.member_epoch) == (Code.NONE, epoch)
        heir = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert isinstance(heir, ConsumerGroup)
        assert {m: heir.target.of(m) for m in heir.members} == {m: group.target.of(m) for m in group.members}
        assert heir.members == group.members and sidecar.lines.events("error") == []

    run(test)


def test_a_member_that_says_more_than_a_record_holds_is_refused_and_the_group_goes_on() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = (await client.ask(join("g", "m"), 1)).member_epoch
        attempt = sidecar.service.owners[0].attempt
        res = await client.ask(join("g", "loud", [f"topic-{i:0100d}" for i in range(50)]), 1)
        assert res.error_code == Code.UNKNOWN_SERVER_ERROR and str(BATCH_BYTES) in res.error_message
        classic = jg.JoinGroupRequest(
            group_id="c",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[jg.JoinGroupRequestProtocol("range", b"x" * 2 * BATCH_BYTES)],
        )
        assert (await client.ask(classic, 9)).error_code == Code.UNKNOWN_SERVER_ERROR
        assert (await client.ask(beat("g", "m", epoch), 1)).error_code == Code.NONE
        assert sidecar.service.owners[0].attempt == attempt and sidecar.lines.events("error") == []
        await until(lambda: sidecar.service.owners[0].idle)
        assert not any(b"loud" in r.key for r in sidecar.brokers.log().records)

    run(test)


# ---- of one writer -----------------------------------------------------------------------------------------------
def read_by(brokers: FakeBrokers) -> list[str]:
    """The keys that readers are told of, as they come."""
    seen: list[str] = []
    brokers.readers.append(lambda topic, partition, records: seen.extend(r.key.decode() for r in records))
    return seen


def test_an_append_that_is_more_than_a_batch_goes_out_in_several_and_readers_see_all_of_it_or_nothing() -> None:
    async def test(b: Bench) -> None:
        seen = read_by(b.brokers)
        b.append(1)
        b.append(2, count=9)
        b.append(3)
        hung = b.brokers.faults.hang(Api.END_TXN)
        await until(lambda: hung.met)
        assert [(x.transactional, len(x.records)) for x in b.brokers.log().batches] == [(False, 1), *[(True, 3)] * 3]
        assert b.written == [(1, 0)] and seen == ["1-0"]
        hung.release()
        await until(lambda: len(b.written) == 3)
        assert b.written == [(1, 0), (2, 9), (3, 11)], "the marker has an offset of its own"
        assert seen == ["1-0", *(f"2-{i}" for i in range(9)), "3-0"]
        assert [(s, n) for s, n in b.batches] == [(0, 1), (1, 3), (4, 3), (7, 3), (10, 1)]

    writing.run(test, batch_bytes=240)


def test_the_limit_of_the_batch_before_does_not_end_a_large_write() -> None:
    """Symptom: a partition was taken over again soon after its leader had died. Cause: the timer of a batch that was
    written in its last seconds failed the large write that came next."""

    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.PRODUCE, Code.NOT_LEADER_OR_FOLLOWER)
        b.brokers.faults.delay(Api.PRODUCE, 0.6)
        b.append(1)
        b.append(2, count=9)
        late = b.brokers.faults.delay(Api.END_TXN, 0.6)
        await until(lambda: len(b.written) == 2 or b.failed)
        assert late.met == 1 and not b.failed

    writing.run(test, batch_bytes=240)


def test_the_next_batch_waits_until_the_partition_knows_of_the_end() -> None:
    async def test(b: Bench) -> None:
        b.append(1, count=9)
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert b.batches[-1] == (9, 1) and not b.failed
        assert len(b.sent) > 4, "the broker refused it while the transaction was open there"

    writing.run(test, brokers=FakeBrokers(marker_s=0.02), batch_bytes=240)


def test_an_owner_that_dies_half_way_leaves_nothing_of_it() -> None:
    async def test(b: Bench) -> None:
        seen = read_by(b.brokers)
        b.append(1)
        b.append(2, count=9)
        hung = b.brokers.faults.hang(Api.END_TXN)
        await until(lambda: hung.met)
        b.writer.stop()
        b.cluster = FakeCluster(b.brokers, "heir")
        heir = b.new_writer()
        await heir.init()
        heir.append([record("claim")], 0)
        await until(lambda: (0, 11) in b.written)
        hung.release()
        await turns()
        assert seen == ["1-0", "claim"]

    writing.run(test, batch_bytes=240)


@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN])
@pytest.mark.parametrize("done", [False, True])
def test_a_step_of_a_transaction_whose_answer_was_lost_is_asked_again(api: Api, done: bool) -> None:
    async def test(b: Bench) -> None:
        seen = read_by(b.brokers)
        b.brokers.faults.drop(api, done=done)
        b.brokers.faults.fail(api, Code.CONCURRENT_TRANSACTIONS)
        b.append(1, count=9)
        await until(lambda: b.written)
        await until(lambda: len(seen) == 9)
        assert b.brokers.count(api) == 3 and b.written == [(1, 8)]

    writing.run(test, batch_bytes=240)


@pytest.mark.parametrize("code", [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED])
def test_what_a_coordinator_of_transactions_does_not_know_or_allow_yet_is_asked_again(code: Code) -> None:
    """As plain appends do."""

    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.ADD_PARTITIONS_TO_TXN, code, times=3)
        b.append(1, count=9)
        await until(lambda: bool(b.written or b.failed))
        assert b.written and not b.failed

    writing.run(test, batch_bytes=240)


@pytest.mark.parametrize("done", [False, True])
def test_a_batch_of_a_transaction_whose_answer_was_lost_is_in_the_log_once(done: bool) -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.drop(Api.PRODUCE, done=done)
        b.brokers.faults.fail(Api.PRODUCE, Code.NOT_LEADER_OR_FOLLOWER)
        b.append(1, count=9)
        await until(lambda: b.written)
        assert list(filter(None, b.keys())) == [f"1-{i}" for i in range(9)]

    writing.run(test, batch_bytes=240)


@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN])
def test_a_writer_that_is_fenced_half_way_says_so(api: Api) -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(api, Code.PRODUCER_FENCED)
        b.append(1, count=9)
        await until(lambda: b.failed)
        assert isinstance(b.failed[0], Fenced) and b.written == [] and not b.writer.busy

    writing.run(test, batch_bytes=240)


@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN])
def test_a_transaction_that_does_not_end_in_time_is_lost(api: Api) -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(api, Code.REQUEST_TIMED_OUT, times=10_000)
        b.append(1, count=9)
        await until(lambda: b.failed)
        assert type(b.failed[0]) is WriteLost and "REQUEST_TIMED_OUT" in str(b.failed[0])

    writing.run(test, timeout_s=0.05, batch_bytes=240)
