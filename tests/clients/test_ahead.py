"""Another consumer (catch_up.py) reads what the tail is late with, from a real broker with a real librdkafka."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from confluent_kafka import Producer

from sidecar.coordinator.statelog.tail import LATE_S, StateLog, Tail
from sidecar.core.consumer.records import GroupRecord
from sidecar.drill.local import LocalKafka
from sidecar.state.codec import Stamp, StateCodec
from tests.clients.ground import make_topic
from tests.inprocess.embedded_sidecar import Counted, Lines

PARTITIONS, RECORDS = 3, 500


class HeldBackTail(Tail):
    """A tail that reads nothing until `may` is set."""

    may = threading.Event()

    def _run(self) -> None:
        self.may.wait()
        super()._run()


class TailTrouble:
    """A listener of the tail that keeps its troubles."""

    def __init__(self) -> None:
        self.trouble: list[str] = []

    def setting_stored(self, group_id: str, name: str) -> None: ...
    def claim_read(self, partition: int) -> None: ...
    def tail_read(self, partition: int) -> None: ...
    def tail_trouble(self, text: str) -> None:
        self.trouble.append(text)

    def tail_went_back(self, partition: int) -> None:
        self.trouble.append(f"{partition} went back")

    def tail_broke(self, exc: BaseException) -> None:
        self.trouble.append(repr(exc))


def test_what_the_tail_is_late_with_is_read_ahead_of_it(kafka: LocalKafka) -> None:
    topic = make_topic(kafka, "ahead", PARTITIONS)
    codec = StateCodec()
    ends: dict[int, int] = {}

    def write(epoch: int) -> None:
        def stored(error: Any, message: Any) -> None:
            assert error is None, error
            ends[message.partition()] = max(message.offset(), ends.get(message.partition(), -1))

        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "compression.type": "lz4"})
        for n in range(RECORDS):
            r = codec.encode(GroupRecord(f"g{n}", epoch, 0), Stamp(7 << 16, 1), epoch)
            producer.produce(topic, key=r.key, value=r.value, partition=n % PARTITIONS, on_delivery=stored)
        assert producer.flush(30) == 0

    async def test() -> None:
        told = TailTrouble()
        log = StateLog(PARTITIONS, codec, Lines(), Counted())
        tail = HeldBackTail(kafka.bootstrap, topic, "late", log, told)
        try:
            write(1)
            began_s = time.monotonic()
            await asyncio.wait_for(asyncio.gather(*[log.wait_applied(p, ends[p]) for p in range(PARTITIONS)]), 10)
            print(f"read ahead in {time.monotonic() - began_s - LATE_S:.3f} s")
            assert sum(len(part.groups) for part in log.partitions) == RECORDS
            assert sum(len(records) for records in log.applied_early) == RECORDS
            # Now the tail comes to the same records, and goes on behind them.
            HeldBackTail.may.set()
            write(2)
            await asyncio.wait_for(asyncio.gather(*[log.wait_applied(p, ends[p]) for p in range(PARTITIONS)]), 10)
            async with asyncio.timeout(10):
                while any(log.applied_early):
                    await asyncio.sleep(0.01)
            assert [r.epoch for r in log.records(0, "g0") if isinstance(r, GroupRecord)] == [2]
            assert not told.trouble
        finally:
            await asyncio.to_thread(tail.stop)

    asyncio.run(test())
