"""Fenced appends to one partition of `__group_state`.

`InitProducerId(transactional.id)` fences every earlier writer; then ordinary idempotent batches under that
producer id and epoch, one in flight, each carrying all that has gathered meanwhile (group commit).
Facts this rests on: ../shared/reference/measured.md 'Writing state'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from sidecar.core.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.produce import Appender
from sidecar.runtime.tasks import Supervisor
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.primitives import WireError

WRITTEN = {Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER}
RETRIABLE = {
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.KAFKA_STORAGE_ERROR,
}
INIT_RETRIABLE = {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
    Code.REQUEST_TIMED_OUT,
}
RETRY_S = 0.05
BATCH_BYTES = 8 << 20
INIT_LANES = 4
LARGE_BATCH = 256 << 10
"""Bytes; larger ones are put together in a thread."""


class WriteLost(Exception):
    """What was appended may or may not be in the log: the state in memory must be rebuilt."""


class Fenced(WriteLost):
    """Another sidecar owns the partition now."""


@dataclass(slots=True)
class _Entry:
    records: Sequence[Encoded]
    done: Callable[[int | None], None]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(r.key) + len(r.value or b"") + 64 for r in self.records)


class FencedWriter:
    """`done(offset of the event's last record)` after the commit, -1 if the broker does not say; `done(None)` if the
    writer failed, then `failure` says why."""

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        topic: str,
        partition: int,
        write_timeout_s: float,
        tasks: Supervisor,
    ) -> None:
        self.cluster = cluster
        self.appender = appender
        self.topic = topic
        self.partition = partition
        self.write_timeout_s = write_timeout_s
        self.tasks = tasks
        self.producer_id = -1
        self.producer_epoch = -1
        self.failure: WriteLost | None = None
        self._sequence = 0
        self._queue: list[_Entry] = []
        self._sending: list[_Entry] = []
        self._under_way = False
        self._task: asyncio.Task[None] | None = None
        self._leader = -1

    @property
    def owner_epoch(self) -> int:
        return self.producer_id << 16 | self.producer_epoch

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._sending)

    async def init(self, timeout_s: float = 30.0) -> None:
        """Fence everybody before us. Also used again later: brokers forget fences (producer.id.expiration.ms)."""
        deadline = time.monotonic() + timeout_s
        txn_id = f"{self.topic}-{self.partition}"
        while True:
            try:
                conn = await self._lane(await self.cluster.coordinator_node(txn_id, 1))
                req = ip.InitProducerIdRequest(transactional_id=txn_id, transaction_timeout_ms=60_000)
                res = await conn.request(ip, "InitProducerId", req, high=4)
                code = res.error_code
            except (ConnectionLost, TimeoutError, WireError) as exc:
                if time.monotonic() > deadline:
                    raise WriteLost(f"InitProducerId: {exc or 'timed out'}") from exc
                await asyncio.sleep(RETRY_S)
                continue
            if code == Code.NONE:
                self.producer_id, self.producer_epoch, self._sequence = res.producer_id, res.producer_epoch, 0
                return
            if code not in INIT_RETRIABLE or time.monotonic() > deadline:
                raise WriteLost(f"InitProducerId: {name_of(code)}")
            await asyncio.sleep(RETRY_S)

    async def _lane(self, node_id: int) -> BrokerConnection:
        """One of a few connections: each broker answers a connection's requests one by one."""
        return await self.cluster.lane(node_id, self.partition % INIT_LANES)

    def append(self, records: Sequence[Encoded], done: Callable[[int | None], None]) -> None:
        """Records of one event, committed together. Without records: `done` once everything before is committed."""
        if self.failure is not None:
            done(None)
            return
        if not records:
            if self._queue:
                self._queue.append(_Entry((), done))
            elif self._sending:
                self._sending.append(_Entry((), done))
            else:
                done(-1)
            return
        self._queue.append(_Entry(records, done))
        self._next()

    def append_wait(self, records: Sequence[Encoded]) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(offset: int | None) -> None:
            if future.done():
                return
            if offset is None:
                future.set_exception(self.failure or WriteLost("writer failed"))
            else:
                future.set_result(offset)

        self.append(records, done)
        return future

    def stop(self, why: WriteLost) -> None:
        """No more appends; what is parked is answered as failed."""
        if self.failure is None:
            self.failure = why
        if self._task is not None:
            self._task.cancel()
            self._task = None
        entries = [*self._sending, *self._queue]
        self._sending, self._queue = [], []  # first: an answer may lead back here
        for entry in entries:
            entry.done(None)

    # ---- one batch after the other ------------------------------------------------------------------------
    def _next(self) -> None:
        """Send what has gathered, if nothing is under way."""
        if self._under_way or not self._queue or self.failure is not None:
            return
        self._under_way = True
        try:
            self._begin()
        except Exception as exc:  # noqa: BLE001 - a bug: the process ends with it
            self.tasks.broken(f"writer-{self.partition}", exc)

    def _begin(self) -> None:
        """Mostly without a task: that costs more than the batch."""
        size = taken = 0
        while taken < len(self._queue) and (taken == 0 or size + self._queue[taken].size <= BATCH_BYTES):
            size += self._queue[taken].size
            taken += 1
        self._sending, self._queue = self._queue[:taken], self._queue[taken:]
        records = [r for e in self._sending for r in e.records]
        started = time.monotonic()
        args = (records, int(time.time() * 1000), self.producer_id, self.producer_epoch, self._sequence)
        self._sequence = (self._sequence + len(records)) & 0x7FFFFFFF
        if size > LARGE_BATCH:
            self._work(lambda: self._send_large(args, started))
            return
        batch = encode_batch(*args)
        if self._leader < 0:
            self._work(lambda: self._send(batch, started, "no leader"))
            return

        def answered(code: int, offset: int, lost: ConnectionLost | None) -> None:
            if self.failure is not None:
                return
            if lost is None and code in WRITTEN:
                self._written(offset)
                return
            self._leader = -1
            why = str(lost) if lost is not None else name_of(code)
            if lost is None and code not in RETRIABLE:
                self.stop(self._refused(code, why))
            else:
                self._work(lambda: self._send(batch, started, why))

        self.appender.put(self._leader, self.topic, self.partition, batch, answered)

    def _written(self, offset: int) -> None:
        sent, self._sending = self._sending, []
        at = offset
        for entry in sent:
            at += len(entry.records)
            entry.done(at - 1 if offset >= 0 else -1)
        self._under_way = False
        self._next()

    def _work(self, send: Callable[[], Coroutine[None, None, int]]) -> None:
        async def work() -> None:
            try:
                offset = await send()
            except WriteLost as exc:
                self._task = None
                self.stop(exc)
                return
            self._task = None
            self._written(offset)

        self._task = self.tasks.spawn(work(), f"writer-{self.partition}")

    async def _send_large(self, args: tuple[list[Encoded], int, int, int, int], started: float) -> int:
        return await self._send(await asyncio.to_thread(encode_batch, *args), started, "no leader")

    def _refused(self, code: int, before: str) -> WriteLost:
        where = f"{self.topic}-{self.partition}: {name_of(code)}"
        if code in (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED):
            return Fenced(where)
        return WriteLost(f"{where} (next sequence {self._sequence}, epoch {self.producer_epoch}; before: {before})")

    async def _send(self, batch: bytes, started: float, last: str) -> int:
        """One batch, retried with the same sequence until it is in or the time is over. Returns its base offset."""
        deadline = started + self.write_timeout_s
        while time.monotonic() < deadline:
            try:
                if self._leader < 0:
                    view = await self.cluster.refresh([self.topic])
                    leaders = view.leaders.get(self.topic, ())
                    self._leader = leaders[self.partition] if self.partition < len(leaders) else -1
                if self._leader >= 0:
                    code, offset = await self.appender.append(self._leader, self.topic, self.partition, batch)
                    if code in WRITTEN:
                        return offset
                    if code not in RETRIABLE:
                        raise self._refused(code, last)
                    last = name_of(code)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                last = str(exc) or "timed out"
            self._leader = -1
            await asyncio.sleep(RETRY_S)
        raise WriteLost(f"{self.topic}-{self.partition}: {last} for {self.write_timeout_s} s")
