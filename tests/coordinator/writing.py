"""One fenced writer and its brokers, for the tests of what it writes and of its fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sidecar.coordinator.statelog import fenced_writer as module
from sidecar.coordinator.statelog.fenced_writer import FencedWriter, WriterPorts
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.kafka.produce import Appender
from sidecar.process.tasks import Supervisor
from sidecar.state.codec import Encoded
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.broker import STATE, FakeBrokers
from tests.inprocess.cluster import FakeCluster

TXN = f"{STATE}-0"


class Bench:
    """One writer of partition 0, with the results of its appends."""

    def __init__(
        self, brokers: FakeBrokers | None = None, timeout_s: float = 1.0, batch_bytes: int = module.BATCH_BYTES
    ) -> None:
        self.batch_bytes = batch_bytes
        self.brokers = brokers or FakeBrokers()
        self.cluster = FakeCluster(self.brokers)
        self.tasks = Supervisor()
        self.tasks.watch(asyncio.get_running_loop())
        self.appender = Appender(self.cluster, timeout_s)
        self.timeout_s = timeout_s
        self.written: list[tuple[int, int]] = []
        self.failed: list[WriteLost] = []
        self.writer = self.new_writer()

    def new_writer(self) -> FencedWriter:
        return FencedWriter(
            self.cluster,
            self.appender,
            STATE,
            0,
            self.timeout_s,
            WriterPorts(lambda serial, offset: self.written.append((serial, offset)), self.failed.append),
            self.tasks,
            self.batch_bytes,
        )

    def append(self, serial: int, count: int = 1, size: int = 1) -> None:
        self.writer.append([record(f"{serial}-{i}", size) for i in range(count)], serial)

    @property
    def batches(self) -> list[tuple[int, int]]:
        """Sequence and count of each batch in the log."""
        return [(b.sequence, len(b.records)) for b in self.brokers.log().batches]

    @property
    def sent(self) -> list[bytes]:
        """The batches as they came to a broker, one for each Produce request."""
        return [req.topic_data[0].partition_data[0].records for req in self.brokers.requests(Api.PRODUCE)]

    def keys(self) -> list[str]:
        return [r.key.decode() for r in self.brokers.log().records]


def record(name: str, size: int = 1) -> Encoded:
    return Encoded(name.encode(), b"x" * size)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        bench = Bench(**given)
        await bench.writer.init()
        await test(bench)
        assert not bench.tasks.failed.done()

    clock.run(main())
