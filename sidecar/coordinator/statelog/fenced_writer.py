"""Fenced appends to one partition of `__group_state`.

A fence (fence.py) shuts out every earlier writer; then ordinary idempotent batches go out under its producer id and
epoch, one in flight, each with all appends that have gathered meanwhile (group commit). An append that is too large for
one batch goes out in several, inside a transaction (large_write.py).
Facts this rests on: docs/reference/measurements.md, 'Writing state'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sidecar.coordinator.statelog.batch_under_way import NO_LEADER, BatchUnderWay
from sidecar.coordinator.statelog.fence import Fence, Producer
from sidecar.coordinator.statelog.large_write import LargeWrite
from sidecar.coordinator.statelog.partition_leader import PartitionLeader
from sidecar.coordinator.statelog.write_errors import FENCED, TOO_LARGE, WRITTEN, Fenced, WriteLost
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost, is_cancelled
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.produce import SILENT_S, Appender
from sidecar.link.ports import Tasks
from sidecar.state.batch import encode_batch
from sidecar.state.codec import RECORD_BYTES, Encoded

RETRY_S = 0.05
BATCH_BYTES = 8 << 20
"""Most bytes of a batch: half of the max.message.bytes with which the sidecar makes the topic."""
LARGE_BATCH = 2 << 20
"""Bytes above which a batch is encoded in a thread. Below, encoding takes the event loop less than a millisecond; a
thread, which shares the interpreter with the loop, takes many."""


@dataclass(slots=True)
class _Entry:
    records: Sequence[Encoded]
    serial: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = 0
        for r in self.records:
            self.size += r.size if r.headers else len(r.key) + len(r.value or b"") + RECORD_BYTES


@dataclass(frozen=True, slots=True)
class WriterPorts:
    """The writer's calls. `written(serial, offset)` is called in the order of the appends, with the offset of the last
    record of each, -1 if the broker does not say; `failed(why)` once, and then nothing more. Neither is called from
    within `append`. `took(seconds)`: called with the time until each batch was committed."""

    written: Callable[[int, int], None]
    failed: Callable[[WriteLost], None]
    took: Callable[[float], None] = lambda seconds: None


class FencedWriter:
    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        topic: str,
        partition: int,
        write_timeout_s: float,
        ports: WriterPorts,
        tasks: Tasks,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.place = f"{topic}-{partition}"
        """Topic and partition; also the transactional id."""
        self.producer = Producer()
        self.stopped = False
        self.claim_at = -1
        """Offset of the claim's first record; -1 until the claim is written, and if it took several batches."""
        self._cluster = cluster
        self._appender = appender
        self._ports = ports
        self._tasks = tasks
        self._leader = PartitionLeader(cluster, appender, topic, partition)
        self._batch = BatchUnderWay(write_timeout_s, batch_bytes)
        self._queue: list[_Entry] = []
        self._sending: list[_Entry] = []
        self._task: asyncio.Task[Any] | None = None
        self._claims = True
        """Whether no append is written yet: the claim comes first."""

    @property
    def owner_epoch(self) -> int:
        return self.producer.owner_epoch

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._sending)

    async def init(self) -> None:
        """Takes the fence, which shuts out all earlier writers. Raises WriteLost with the reason if that fails or the
        writer is stopped: a request that still waits then is not sent, as it would shut out a later writer."""
        fence = Fence(self._cluster, self.place, self._leader.partition, lambda: self.stopped)
        self._task = taking = asyncio.ensure_future(fence.take())
        try:
            self.producer = await taking
        except asyncio.CancelledError:
            if not self.stopped or is_cancelled():
                raise
            raise WriteLost("stopped") from None
        finally:
            self._task = None
            del taking  # its exception holds this frame

    def append(self, records: Sequence[Encoded], serial: int) -> None:
        """Queues records, which are committed together, after all earlier ones."""
        if not self.stopped:
            self._queue.append(_Entry(records, serial))
            if not self._sending:
                self._next()

    def stop(self) -> None:
        """Ends the appends; a batch under way may still reach the log."""
        self.stopped = True
        self._queue.clear()
        self._sending.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # ---- one batch after the other ------------------------------------------------------------------------
    def _next(self) -> None:
        """Sends the gathered appends, if none is under way. Mostly without a task, which costs more than the batch."""
        if self._sending or not self._queue or self.stopped:
            return
        most_bytes = self._batch.most_bytes
        if self._queue[0].size > most_bytes and len(self._queue[0].records) > 1:
            self._sending = [self._queue.pop(0)]
            self._work(self._write_large(self._sending[0]))
            return
        size = taken = 0
        while taken < len(self._queue) and (taken == 0 or size + self._queue[taken].size <= most_bytes):
            size += self._queue[taken].size
            taken += 1
        self._sending, self._queue = self._queue[:taken], self._queue[taken:]
        records = [r for e in self._sending for r in e.records]
        self._batch.begin()
        producer = self.producer
        encode = partial(encode_batch, records, int(time.time() * 1000), producer.id, producer.epoch, producer.sequence)
        self.producer.count(len(records))
        if size > LARGE_BATCH:
            self._work(self._encode_large(encode))
        else:
            self._batch.data = encode()
            self._put()

    async def _encode_large(self, encode: Callable[[], bytes]) -> None:
        self._batch.data = await asyncio.to_thread(encode)
        self._task = None
        self._put()

    def _put(self) -> None:
        leader, batch = self._leader, self._batch
        if leader.node_id < 0:
            self._work(self._find_leader())
        else:
            # When a broker has died, many partitions have new leaders, and replicas that are slow to follow them: no
            # claim must wait for those of another partition. With all in sync, one request for all is the fastest.
            put = self._appender.put_apart if self._claims and leader.behind else self._appender.put
            batch.puts += 1
            put(leader.node_id, leader.topic, leader.partition, batch.data, partial(self._put_answered, batch.puts))

    def late(self, s: float) -> bool:
        """Returns whether an append has waited for more than `s` seconds."""
        return self._batch.late(s)

    def led_by(self, node_id: int) -> None:
        """Takes in the partition's new leader. A batch that was put to another broker, which may stand still, is put to
        the new one."""
        if self._batch.data and self._task is None and 0 <= node_id != self._leader.node_id:
            self._leader.node_id = node_id
            self._put()

    def _put_answered(self, put: int, code: int, offset: int, lost: ConnectionLost | None) -> None:
        if put == self._batch.puts:
            self._answered(code, offset, lost)

    def _answered(self, code: int, offset: int, lost: ConnectionLost | None) -> None:
        """Acts on an answer: the batch is written, put again, split, or lost. Putting the same batch again is safe: its
        sequence is the same."""
        if self.stopped:
            return
        if lost is None and code in WRITTEN:
            self._written(offset)
            return
        batch = self._batch
        before, batch.last = batch.last, str(lost) if lost is not None else name_of(code)
        if lost is not None or batch.retriable(code):
            self._leader.node_id = -1
            self._work(self._find_leader(RETRY_S))
        elif code in TOO_LARGE and sum(len(e.records) for e in self._sending) > 1:
            self._in_smaller_batches()
        else:
            self._fail(self._refused(code, before))

    def _refused(self, code: int, before: str) -> WriteLost:
        where = f"{self.place}: {self._batch.last}"
        if code in FENCED:
            return Fenced(where)
        if code in TOO_LARGE:
            size = len(self._batch.data)
            where += f": a record of {size} bytes is more than max.message.bytes of {self._leader.topic} allows"
        producer = self.producer
        return WriteLost(f"{where} (next sequence {producer.sequence}, epoch {producer.epoch}; before: {before})")

    def _in_smaller_batches(self) -> None:
        """Splits the batch, of which no record is in the log."""
        self._batch.too_large()
        taken, self._sending = self._sending, []
        self.producer.count(-sum(len(e.records) for e in taken))
        self._queue[:0] = taken
        self._next()

    async def _find_leader(self, pause_s: float = 0.0) -> None:
        """Looks for the leader, and puts the batch to it, until the batch's time is over."""
        leader, batch = self._leader, self._batch
        while leader.node_id < 0:
            if batch.left_s <= 0:
                self._task = None
                self._too_late()
                return
            await asyncio.sleep(pause_s)
            pause_s = RETRY_S
            try:
                leader.node_id = await leader.find(batch.last)
            except NO_ANSWER as exc:
                batch.last = str(exc) or "timed out"
            except WriteLost as exc:
                self._task = None
                self._fail(exc)
                return
        self._task = None
        self._put()
        if (left_s := batch.left_s) < SILENT_S:  # its time may be over before it is answered
            asyncio.get_running_loop().call_later(max(left_s, 0.0), self._unanswered, batch.puts)

    def _unanswered(self, put: int) -> None:
        batch = self._batch
        if put == batch.puts and batch.data and not self.stopped:
            if batch.last == NO_LEADER:
                batch.last = f"broker {self._leader.node_id}: no answer"
            self._too_late()

    def _too_late(self) -> None:
        self._fail(WriteLost(f"{self.place}: {self._batch.last} for {self._batch.timeout_s} s"))

    def _written(self, offset: int) -> None:
        sent, self._sending = self._sending, []
        self._ports.took(self._batch.timeout_s - self._batch.left_s)
        if self._claims:
            self.claim_at = offset
        self._batch.data, self._batch.marker_due, self._claims = b"", False, False
        at = offset
        for entry in sent:
            if self.stopped:  # what was written before has let a request in, and its turn has broken
                return
            at += len(entry.records)
            self._ports.written(entry.serial, at - 1 if offset >= 0 else -1)
        self._next()

    async def _write_large(self, entry: _Entry) -> None:
        """Writes an append that is too large for one batch."""
        batch = self._batch
        batch.begin()
        write = LargeWrite(self._cluster, self._appender, self._leader, self.producer, batch)
        ended, offset = await write.run(entry.records)
        self._task = None
        before, batch.last = batch.last, ended.text
        if ended.code != Code.NONE:
            self._fail(self._refused(ended.code, before))
            return
        self._sending, batch.data, batch.marker_due, self._claims = [], b"", True, False
        self._ports.written(entry.serial, offset)
        self._next()

    # ---- the end ------------------------------------------------------------------------------------------
    def _fail(self, why: WriteLost) -> None:
        self.stop()
        self._ports.failed(why)

    def _work(self, work: Coroutine[None, None, None]) -> None:
        self._task = self._tasks.spawn(work, f"writer-{self._leader.partition}")
