"""Writes of more than one batch to a real broker: readers see all of such a write or nothing, and the fence stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.coordinator.statelog import large_write as transaction
from sidecar.coordinator.statelog.fenced_writer import FencedWriter, WriterPorts
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.drill.local import LocalKafka
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.produce import Appender
from sidecar.process.tasks import Supervisor
from sidecar.state.codec import Encoded
from tests.inprocess.embedded_sidecar import until

TOPIC = "__large"
MOST_BYTES = 100_000
"""max.message.bytes of the topic."""


class Bench:
    """Writers of one partition, and what they say."""

    def __init__(self, kafka: LocalKafka, partition: int, topic: str) -> None:
        host, _, port = kafka.internal.rpartition(":")
        self.kafka, self.partition, self.topic = kafka, partition, topic
        self.cluster = Cluster([(host, int(port))], "large", {})
        self.tasks = Supervisor()
        self.tasks.watch(asyncio.get_running_loop())
        self.appender = Appender(self.cluster, 10.0)
        self.written: list[int] = []
        self.failed: list[WriteLost] = []

    async def writer(self, batch_bytes: int = MOST_BYTES // 2) -> FencedWriter:
        made = FencedWriter(
            self.cluster,
            self.appender,
            self.topic,
            self.partition,
            10.0,
            WriterPorts(lambda serial, offset: self.written.append(serial), self.failed.append),
            self.tasks,
            batch_bytes,
        )
        end = asyncio.get_running_loop().time() + 30
        while True:
            try:
                await made.init()
                return made
            except WriteLost:  # a broker that has just started makes __transaction_state first
                if asyncio.get_running_loop().time() > end:
                    raise

    def read(self) -> list[str]:
        """The keys as the tail of a sidecar reads them: with librdkafka's defaults."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.internal,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(self.topic, self.partition, 0)])
        found: list[str] = []
        while True:
            m = consumer.poll(10)
            assert m is not None
            error, key = m.error(), m.key()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return found
            assert isinstance(key, bytes)
            found.append(key.decode())


def records(serial: int, count: int, size: int = 1_000) -> list[Encoded]:
    return [Encoded(f"{serial}-{i}".encode(), b"x" * size) for i in range(count)]


def keys(serial: int, count: int) -> list[str]:
    return [f"{serial}-{i}" for i in range(count)]


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    made = NewTopic(TOPIC, 4, 1, config={"cleanup.policy": "compact", "max.message.bytes": str(MOST_BYTES)})
    admin.create_topics([made])[TOPIC].result(timeout=30)
    return TOPIC


def run(kafka: LocalKafka, partition: int, test: Callable[[Bench], Awaitable[None]], topic: str = TOPIC) -> None:
    async def main() -> None:
        bench = Bench(kafka, partition, topic)
        await test(bench)
        bench.appender.close()
        bench.cluster.close()
        assert not bench.tasks.failed.done()

    asyncio.run(main())


def test_large_and_small_writes_follow_each_other_in_their_order(kafka: LocalKafka, topic: str) -> None:
    async def test(b: Bench) -> None:
        w = await b.writer()
        epoch = w.owner_epoch
        for serial, count in ((1, 1), (2, 300), (3, 1), (4, 300), (5, 300), (6, 2)):
            w.append(records(serial, count), serial)
        await until(lambda: b.failed or len(b.written) == 6, 30)
        assert not b.failed and b.written == [1, 2, 3, 4, 5, 6] and w.owner_epoch == epoch
        await until(lambda: len(b.read()) == 904, 10)
        assert b.read() == [
            *keys(1, 1), *keys(2, 300), *keys(3, 1), *keys(4, 300), *keys(5, 300), *keys(6, 2)
        ]  # fmt: skip

    run(kafka, 0, test)


def test_a_writer_that_thinks_too_much_of_the_topic_finds_out(kafka: LocalKafka, topic: str) -> None:
    async def test(b: Bench) -> None:
        w = await b.writer(batch_bytes=8 << 20)
        w.append(records(1, 300), 1)
        w.append(records(2, 3), 2)
        await until(lambda: b.failed or len(b.written) == 2, 30)
        assert not b.failed
        await until(lambda: b.read() == [*keys(1, 300), *keys(2, 3)], 10)
        w.append(records(3, 1, 2 * MOST_BYTES), 3)
        await until(lambda: b.failed, 30)
        assert "MESSAGE_TOO_LARGE: a record of 2" in str(b.failed[0])

    run(kafka, 1, test)


def test_an_owner_that_dies_half_way_leaves_nothing_and_its_heir_goes_on(
    kafka: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(b: Bench) -> None:
        w = await b.writer()
        w.append(records(1, 1), 1)
        halted = asyncio.Event()

        async def never(self: transaction.Transaction, until: float) -> transaction.Outcome:
            halted.set()
            await asyncio.Event().wait()
            raise AssertionError("it never comes to that")

        with monkeypatch.context() as patch:
            patch.setattr(transaction.Transaction, "commit", never)
            w.append(records(2, 300), 2)
            await asyncio.wait_for(halted.wait(), 30)
            assert b.read() == keys(1, 1), "all of it stands in the log, and nobody sees it"
            heir = await b.writer()
            w.stop()
        heir.append(records(3, 1), 3)
        heir.append(records(4, 200), 4)
        await until(lambda: b.failed or len(b.written) == 3, 30)
        assert not b.failed
        await until(lambda: b.read() == [*keys(1, 1), *keys(3, 1), *keys(4, 200)], 10)

    run(kafka, 2, test)


def test_a_former_owner_cannot_end_what_it_began(kafka: LocalKafka, topic: str) -> None:
    async def test(b: Bench) -> None:
        w, heir = await b.writer(), await b.writer()
        w.append(records(1, 300), 1)
        await until(lambda: b.failed, 30)
        assert isinstance(b.failed[0], Fenced) and b.written == []
        heir.append(records(2, 300), 2)
        await until(lambda: b.written == [2], 30)
        await until(lambda: b.read() == keys(2, 300), 10)

    run(kafka, 3, test)
