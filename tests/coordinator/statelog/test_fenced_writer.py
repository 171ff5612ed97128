"""The fenced writer against a broker that judges epochs and sequence numbers: batches, retries, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sidecar.coordinator.statelog import fenced_writer as module
from sidecar.coordinator.statelog.partition_leader import PartitionLeader
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.core.vocabulary.errors import Code
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.apis import Api
from tests.coordinator.writing import TXN, Bench, record, run
from tests.inprocess import clock
from tests.inprocess.broker import STATE, FakeBrokers
from tests.inprocess.embedded_sidecar import turns, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.002)


# ---- batches --------------------------------------------------------------------------------------------------------
def test_what_gathers_while_a_batch_is_under_way_goes_out_as_one() -> None:
    async def test(b: Bench) -> None:
        hung = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: hung.met)
        for serial in range(2, 52):
            b.append(serial)
        assert b.writer.busy and b.written == []
        hung.release()
        await until(lambda: len(b.written) == 51)
        assert b.batches == [(0, 1), (1, 50)]
        assert b.written == [(serial, serial - 1) for serial in range(1, 52)]
        assert not b.writer.busy

    run(test)


def test_an_append_of_many_records_has_the_offset_of_its_last_one() -> None:
    async def test(b: Bench) -> None:
        b.append(7, count=3)
        b.append(8, count=2)
        await until(lambda: len(b.written) == 2)
        assert b.written == [(7, 2), (8, 4)]
        assert b.keys() == ["7-0", "7-1", "7-2", "8-0", "8-1"]

    run(test)


def test_a_batch_ends_before_it_is_too_large_and_not_inside_an_append() -> None:
    async def test(b: Bench) -> None:
        hung = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: hung.met)
        for serial, count in ((2, 2), (3, 3), (4, 5), (5, 1)):
            b.append(serial, count)
        hung.release()
        await until(lambda: len(b.written) == 5)
        assert [count for _, count in b.batches] == [1, 5, 5, 1]
        assert [serial for serial, _ in b.written] == [1, 2, 3, 4, 5]
        assert not any(batch.transactional for batch in b.brokers.log().batches)

    run(test, batch_bytes=400)


def test_a_large_batch_is_put_together_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_BATCH", 1_000)
    threads: list[str] = []

    def encode(records: Sequence[Encoded], *rest: int) -> bytes:
        import threading

        threads.append(threading.current_thread().name)
        return encode_batch(records, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "encode_batch", encode)

    async def test(b: Bench) -> None:
        b.append(1, size=2_000)
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert threads[0] != "MainThread" and threads[1] == "MainThread"
        assert b.batches == [(0, 1), (1, 1)]

    run(test)


def test_neither_callback_is_called_from_within_an_append() -> None:
    async def test(b: Bench) -> None:
        b.append(1)
        assert b.written == [] and b.failed == []
        b.append(2)
        assert b.written == [] and b.failed == []
        await until(lambda: len(b.written) == 2)

    run(test)


# ---- the same batch again -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "code", [Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR, Code.REQUEST_TIMED_OUT]
)
def test_a_batch_refused_for_now_is_sent_again_as_it_was(code: Code) -> None:
    async def test(b: Bench) -> None:
        b.append(1)
        await until(lambda: len(b.written) == 1)
        b.brokers.faults.fail(Api.PRODUCE, code, times=2)
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert len(b.sent) == 4 and b.sent[1] == b.sent[2] == b.sent[3]
        assert b.batches == [(0, 1), (1, 1)]

    run(test)


@pytest.mark.parametrize("done", [False, True])
def test_a_batch_whose_answer_was_lost_is_in_the_log_once(done: bool) -> None:
    async def test(b: Bench) -> None:
        lost = b.brokers.faults.drop(Api.PRODUCE, done=done)
        b.append(1, count=2)
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert lost.met == 1 and b.sent[0] == b.sent[1]
        assert b.keys() == ["1-0", "1-1", "2-0"]
        assert b.written == [(1, 1), (2, 2)]

    run(test)


def test_a_leader_that_moves_is_found() -> None:
    async def test(b: Bench) -> None:
        b.append(1)
        await until(lambda: len(b.written) == 1)
        b.brokers.topics[STATE].leaders[0] = 2
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert [a.node_id for a in b.brokers.asked if a.api is Api.PRODUCE] == [1, 1, 2]

    run(test, brokers=FakeBrokers(nodes=(1, 2)))


def test_writers_that_look_for_their_leaders_at_once_ask_once() -> None:
    """Symptom: when a broker of a cluster with hundreds of partitions died, the sidecars had no time for heartbeats.
    Cause: the writer of each partition asked for the leaders of all of them, twenty times a second."""

    async def test(b: Bench) -> None:
        leaders = [PartitionLeader(b.cluster, b.appender, STATE, p) for p in range(4)]
        for times in (1, 2):
            before = b.brokers.count(Api.METADATA)
            assert await asyncio.gather(*(leader.find("") for leader in leaders)) == b.brokers.topics[STATE].leaders
            assert b.brokers.count(Api.METADATA) == before + 1, times

    run(test, brokers=FakeBrokers(nodes=(1, 2), partitions=4))


def test_what_a_leader_that_stands_still_has_got_is_put_to_the_next_one() -> None:
    """The writer is told who leads; the answer of the former leader, if one comes, has no effect any more."""

    async def test(b: Bench) -> None:
        still = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: still.met == 1)
        clock.block_loop(0.001)
        assert b.writer.late(0.0) and not b.writer.late(60.0)
        b.append(2)
        still.end()
        b.brokers.topics[STATE].leaders[0] = 2
        b.writer.led_by(1)
        b.writer.led_by(2)
        await until(lambda: len(b.written) == 2)
        still.release()
        await asyncio.sleep(0.02)
        assert [a.node_id for a in b.brokers.asked if a.api is Api.PRODUCE][:3] == [1, 2, 2]
        assert b.written == [(1, 0), (2, 1)] and b.batches == [(0, 1), (1, 1)] and not b.failed
        assert not b.writer.late(0.0)
        b.writer.led_by(1)
        await asyncio.sleep(0.01)
        assert b.brokers.count(Api.PRODUCE) == 3, "nothing is under way"

    run(test, brokers=FakeBrokers(nodes=(1, 2)))


def test_a_sequence_number_the_broker_has_seen_long_ago_counts_as_written() -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.PRODUCE, Code.DUPLICATE_SEQUENCE_NUMBER)
        b.append(1)
        await until(lambda: b.written)
        assert b.written == [(1, -1)]

    run(test)


# ---- more than a batch ----------------------------------------------------------------------------------------------


def test_a_topic_that_takes_less_than_we_thought_gets_smaller_batches() -> None:
    async def test(b: Bench) -> None:
        b.brokers.log().most_bytes = 300
        hung = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: hung.met)
        for serial in range(2, 6):
            b.append(serial, count=10)
        hung.release()
        await until(lambda: len(b.written) == 5)
        keys = list(filter(None, b.keys()))
        assert keys == ["1-0", *(f"{serial}-{i}" for serial in range(2, 6) for i in range(10))]
        assert not b.failed and max(len(batch.records) for batch in b.brokers.log().batches) < 10

    run(test)


def test_a_record_that_no_batch_takes_is_lost_and_the_reason_names_the_setting() -> None:
    async def test(b: Bench) -> None:
        b.brokers.log().most_bytes = 300
        b.append(1, size=400)
        await until(lambda: b.failed)
        assert "MESSAGE_TOO_LARGE: a record of 4" in str(b.failed[0])
        assert f"max.message.bytes of {STATE}" in str(b.failed[0])

    run(test)


# ---- the end --------------------------------------------------------------------------------------------------------
def test_a_later_owner_fences_the_writer() -> None:
    async def test(b: Bench) -> None:
        other = b.new_writer()
        await other.init()
        assert other.owner_epoch == b.writer.owner_epoch + 1
        b.append(1)
        await until(lambda: b.written == [(1, 0)])  # the partition has not heard of the new epoch yet
        other.append([record("claim")], 0)
        await until(lambda: b.written == [(1, 0), (0, 1)])
        b.append(2)
        b.append(3)
        await until(lambda: b.failed)
        (why,) = b.failed
        assert isinstance(why, Fenced) and "INVALID_PRODUCER_EPOCH" in str(why)
        b.append(4)
        await turns()
        assert len(b.failed) == 1 and not b.writer.busy and b.keys() == ["1-0", "claim"]

    run(test)


def test_error_90_fences_too() -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.PRODUCE, Code.PRODUCER_FENCED)
        b.append(1)
        await until(lambda: b.failed)
        assert isinstance(b.failed[0], Fenced) and b.written == []

    run(test)


@pytest.mark.parametrize("code", [Code.MESSAGE_TOO_LARGE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID])
def test_what_trying_again_does_not_mend_is_lost_at_once(code: int) -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.PRODUCE, code)
        b.append(1)
        await until(lambda: b.failed)
        assert type(b.failed[0]) is WriteLost and "next sequence 1, epoch 0" in str(b.failed[0])
        assert b.brokers.count(Api.PRODUCE) == 1 and b.writer.stopped

    run(test)


def test_what_is_not_written_in_time_is_lost() -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.fail(Api.PRODUCE, Code.NOT_ENOUGH_REPLICAS, times=10_000)
        b.append(1)
        await until(lambda: b.failed)
        assert str(b.failed[0]) == f"{TXN}: NOT_ENOUGH_REPLICAS for 0.05 s"
        assert len(set(b.sent)) == 1 < len(b.sent)

    run(test, timeout_s=0.05)


def test_so_is_what_a_broker_never_answers() -> None:
    async def test(b: Bench) -> None:
        b.brokers.faults.hang(Api.PRODUCE, times=100)
        b.append(1)
        await until(lambda: b.failed)
        assert str(b.failed[0]).startswith(f"{TXN}: broker 1: ") and str(b.failed[0]).endswith(" for 0.05 s")

    run(test, timeout_s=0.05)


def test_the_last_try_waits_no_longer_than_the_others_have_left() -> None:
    """A leader that is silent is asked anew after seconds, and the last try has but the rest of the time."""

    async def test(b: Bench) -> None:
        refused = b.brokers.faults.fail(Api.PRODUCE, Code.NOT_ENOUGH_REPLICAS, times=6)
        b.brokers.faults.hang(Api.PRODUCE, times=100)
        b.append(1)
        await until(lambda: b.failed)
        assert refused.met == 6 and str(b.failed[0]) == f"{TXN}: NOT_ENOUGH_REPLICAS for 1.0 s"

    run(test)


def test_without_a_leader_nothing_is_sent_and_it_is_lost_in_time() -> None:
    async def test(b: Bench) -> None:
        b.brokers.topics[STATE].leaders[0] = -1
        b.append(1)
        await until(lambda: b.failed)
        assert str(b.failed[0]) == f"{TXN}: no leader for 0.05 s" and b.sent == []

    run(test, timeout_s=0.05)


def test_after_stop_nothing_is_said_and_nothing_sent() -> None:
    async def test(b: Bench) -> None:
        hung = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: hung.met)
        b.append(2)
        b.writer.stop()
        b.append(3)
        hung.release()
        await turns()
        assert b.keys() == ["1-0"], "what was under way may still come to the log"
        assert b.written == [] and b.failed == [] and not b.writer.busy

    run(test)


def test_nor_is_a_refusal_that_comes_after_it() -> None:
    async def test(b: Bench) -> None:
        hung = b.brokers.faults.hang(Api.PRODUCE)
        b.append(1)
        await until(lambda: hung.met)
        b.writer.stop()
        later = b.brokers.init(TXN)
        claim = encode_batch([record("claim")], 1, later.producer_id, later.epoch, 0)
        assert b.brokers.append(STATE, 0, claim)[0] == Code.NONE
        hung.release()
        await turns()
        assert b.keys() == ["claim"] and b.failed == [] and b.written == []

    run(test)


def test_stop_ends_the_search_for_a_leader() -> None:
    async def test(b: Bench) -> None:
        b.brokers.topics[STATE].leaders[0] = -1
        b.append(1)
        await turns()
        b.writer.stop()
        b.brokers.topics[STATE].leaders[0] = 1
        await asyncio.sleep(0.01)
        assert b.sent == [] and b.written == [] and b.failed == []

    run(test)
