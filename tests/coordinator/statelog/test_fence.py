"""A fenced writer begins with the fence that shuts out all earlier writers, and with its claim."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.coordinator.statelog import fence as module
from sidecar.coordinator.statelog.fenced_writer import FencedWriter, WriterPorts
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.lanes import FENCES
from sidecar.kafka.produce import Appender
from sidecar.process.tasks import Supervisor
from sidecar.wire.apis import Api
from tests.coordinator.writing import TXN, Bench, record
from tests.inprocess import clock
from tests.inprocess.broker import STATE, TRANSACTIONS, FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import turns, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.002)


async def writers_of(brokers: FakeBrokers, count: int, done: list[tuple[int, int]]) -> list[FencedWriter]:
    """Returns writers of as many partitions; `done` gets the partition and the serial of each append."""
    cluster, tasks = FakeCluster(brokers), Supervisor()
    await cluster.anyone()
    appender = Appender(cluster, 1.0)

    def writer(p: int) -> FencedWriter:
        def written(serial: int, offset: int) -> None:
            done.append((p, serial))

        return FencedWriter(cluster, appender, STATE, p, 1.0, WriterPorts(written, lambda why: None), tasks)

    return [writer(p) for p in range(count)]


def init(brokers: FakeBrokers) -> FencedWriter:
    """A writer after its `init`, which raises what that raises."""

    async def main() -> FencedWriter:
        bench = Bench(brokers)
        await bench.writer.init()
        return bench.writer

    return clock.run(main())


def test_each_init_has_a_higher_owner_epoch() -> None:
    brokers = FakeBrokers()
    first, second = init(brokers), init(brokers)
    assert (first.producer.id, first.producer.epoch, second.producer.epoch) == (second.producer.id, 0, 1)
    assert first.owner_epoch == first.producer.id << 16 and second.owner_epoch == first.owner_epoch + 1
    assert [r.transactional_id for r in brokers.requests(Api.INIT_PRODUCER_ID)] == [TXN, TXN]


@pytest.mark.parametrize(
    "code", [Code.CONCURRENT_TRANSACTIONS, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR]
)
def test_a_coordinator_that_is_busy_is_asked_again(code: Code) -> None:
    brokers = FakeBrokers()
    brokers.faults.fail(Api.INIT_PRODUCER_ID, code, times=3)
    assert init(brokers).producer.epoch == 0
    assert brokers.count(Api.INIT_PRODUCER_ID) == 4


def test_a_coordinator_that_loads_is_not_looked_for_again() -> None:
    brokers = FakeBrokers()
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    init(brokers)
    assert brokers.count(Api.FIND_COORDINATOR) == 1
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.NOT_COORDINATOR, times=3)
    init(brokers)
    assert brokers.count(Api.FIND_COORDINATOR) == 1 + 4


def test_a_writer_that_is_stopped_waits_for_no_fence() -> None:
    """A request that still waits on its connection would shut a later writer out."""

    async def main() -> None:
        bench = Bench(FakeBrokers())
        still = bench.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        attempt = asyncio.ensure_future(bench.writer.init())
        await until(lambda: still.met == 1)
        bench.writer.stop()
        with pytest.raises(WriteLost, match="stopped"):
            await asyncio.wait_for(attempt, 0.1)

    clock.run(main())


def test_a_coordinator_that_stands_still_is_left_when_another_one_has_its_office(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.01)

    async def main() -> None:
        bench = Bench(FakeBrokers(nodes=(1, 2)))
        still = bench.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        found = [1, 1, 1]

        async def coordinator_node(key: str, key_type: int) -> int:
            return found.pop() if found else 2

        monkeypatch.setattr(bench.cluster, "coordinator_node", coordinator_node)
        await bench.writer.init()
        assert not found and still.met == 1
        assert [a.node_id for a in bench.brokers.asked if a.api is Api.INIT_PRODUCER_ID] == [1, 2]

    clock.run(main())


def test_a_fence_that_takes_long_is_waited_for_while_nobody_else_has_the_office(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.01)
    brokers = FakeBrokers()
    brokers.faults.delay(Api.INIT_PRODUCER_ID, 0.05)
    assert init(brokers).producer.epoch == 0
    assert brokers.count(Api.INIT_PRODUCER_ID) == 1 and brokers.count(Api.FIND_COORDINATOR) > 2


def test_a_lost_connection_is_no_refusal() -> None:
    brokers = FakeBrokers()
    brokers.faults.drop(Api.INIT_PRODUCER_ID, done=True)
    assert init(brokers).producer.epoch == 1, "the broker had given epoch 0 to the answer that was lost"


def test_a_refusal_for_good_is_told_at_once() -> None:
    brokers = FakeBrokers()
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(WriteLost, match=r"^InitProducerId: TRANSACTIONAL_ID_AUTHORIZATION_FAILED$"):
        init(brokers)
    assert brokers.count(Api.INIT_PRODUCER_ID) == 1


def test_a_timeout_that_the_brokers_refuse_is_named_with_its_remedy() -> None:
    brokers = FakeBrokers()
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(
        WriteLost, match=r"INVALID_TRANSACTION_TIMEOUT\. Set the brokers' transaction\.max\.timeout\.ms"
    ):
        init(brokers)


def test_without_a_transaction_coordinator_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INIT_S", 0.02)
    brokers = FakeBrokers()
    del brokers.topics[TRANSACTIONS]
    with pytest.raises(WriteLost) as exc:
        init(brokers)
    text = str(exc.value)
    assert text.startswith(f"InitProducerId: coordinator of {TXN}: COORDINATOR_NOT_AVAILABLE. There is no topic")
    assert "transaction.state.log.replication.factor" in text and "cannot with 1 broker(s)" in text


def test_nor_where_the_topic_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that may not DESCRIBE the topic said that it is not there."""
    monkeypatch.setattr(module, "INIT_S", 0.02)
    brokers = FakeBrokers()
    brokers.faults.fail(Api.METADATA, Code.TOPIC_AUTHORIZATION_FAILED, times=10_000)
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.CONCURRENT_TRANSACTIONS, times=10_000)
    with pytest.raises(WriteLost, match=r"^InitProducerId: CONCURRENT_TRANSACTIONS$"):
        init(brokers)


def test_with_the_topic_there_is_no_remedy_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INIT_S", 0.02)
    brokers = FakeBrokers()
    brokers.faults.fail(Api.INIT_PRODUCER_ID, Code.CONCURRENT_TRANSACTIONS, times=10_000)
    with pytest.raises(WriteLost, match=r"^InitProducerId: CONCURRENT_TRANSACTIONS$"):
        init(brokers)


def test_the_fences_of_many_partitions_share_a_few_connections() -> None:
    async def main() -> None:
        brokers = FakeBrokers(partitions=20)
        writers = await writers_of(brokers, 20, [])
        await asyncio.gather(*(w.init() for w in writers))
        assert len({w.producer.id for w in writers}) == 20
        assert len(brokers.lost) <= FENCES + 1, "and the one that everybody is asked over"
        assert len(brokers.lost) > FENCES, "none of them waits for more than one other"

    clock.run(main())


def test_no_claim_waits_for_a_partition_whose_replicas_are_not_all_in_sync() -> None:
    """Symptom: when a broker died, groups that it did not lead had commits answered half a second late. Cause: their
    records were in one request with the claims of partitions whose replicas had yet to find the new leader."""

    async def main() -> None:
        brokers = FakeBrokers(partitions=3)
        brokers.topics[STATE].behind = {0, 1, 2}
        done: list[tuple[int, int]] = []
        writers = await writers_of(brokers, 3, done)
        await asyncio.gather(*(w.init() for w in writers))
        slow = brokers.faults.hang(
            Api.PRODUCE, 1, lambda req: any(p.index == 0 for t in req.topic_data for p in t.partition_data)
        )
        for serial in (1, 2):
            for w in writers:
                w.append([record("claim" if serial == 1 else "next")], serial)
            await until(lambda: {(1, serial), (2, serial)} <= set(done))  # noqa: B023
        assert slow.met == 1 and not [p for p, _ in done if p == 0]
        slow.release()
        await until(lambda: {(0, 1), (0, 2)} <= set(done))
        assert [len(r.topic_data[0].partition_data) for r in brokers.requests(Api.PRODUCE)][:3] == [1, 1, 1]

    clock.run(main())


def test_with_all_replicas_in_sync_claims_share_a_request() -> None:
    """Symptom: an owner was killed, and the first commit came after 1.9 s. Cause: each of eight claims opened a
    connection of its own to a broker that had just started."""

    async def main() -> None:
        brokers = FakeBrokers(partitions=8)
        done: list[tuple[int, int]] = []
        writers = await writers_of(brokers, 8, done)
        await asyncio.gather(*(w.init() for w in writers))
        slow = brokers.faults.hang(Api.PRODUCE, 8)
        for w in writers:
            w.append([record("claim")], 1)
        await until(lambda: slow.met)
        await turns()
        assert slow.met == 1
        slow.release()
        await until(lambda: len(done) == 8)

    clock.run(main())


@pytest.mark.parametrize("behind", [False, True])
def test_only_a_claim_goes_apart_and_only_where_replicas_are_behind(behind: bool) -> None:
    class RecordingAppender(Appender):
        def put_apart(self, *args: Any) -> None:
            puts.append("apart")
            super().put_apart(*args)

        def put(self, *args: Any) -> None:
            puts.append("with others")
            super().put(*args)

    puts: list[str] = []

    async def main() -> None:
        brokers = FakeBrokers()
        brokers.topics[STATE].behind = {0} if behind else set()
        cluster, done = FakeCluster(brokers), list[int]()
        ports = WriterPorts(lambda serial, offset: done.append(serial), lambda why: None)
        writer = FencedWriter(cluster, RecordingAppender(cluster, 1.0), STATE, 0, 1.0, ports, Supervisor())
        await writer.init()
        for serial in (1, 2):
            writer.append([record(str(serial))], serial)
            await until(lambda: serial in done)  # noqa: B023

    clock.run(main())
    assert puts == ["apart" if behind else "with others", "with others"]
