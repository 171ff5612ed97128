"""Fenced appends to one partition of `__group_state`.

`InitProducerId(transactional.id)` fences every earlier writer; then ordinary idempotent batches under that
producer id and epoch, one in flight, each carrying all that has gathered meanwhile (group commit). One append that is
greater than a batch may be goes out in several, inside a transaction (large_write.py).
Facts this rests on: docs/reference/measurements.md, 'Writing state'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial

from sidecar.coordinator.statelog.large_write import Outcome, Transaction, pieces
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import FENCES, Lane
from sidecar.kafka.produce import SILENT_S, Appender
from sidecar.link.ports import Tasks
from sidecar.state.batch import encode_batch
from sidecar.state.codec import RECORD_BYTES, Encoded
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.primitives import ZERO_UUID, WireError

TRANSACTIONS = "__transaction_state"
TOO_LARGE = {Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE}
FENCED = {Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED}
WRITTEN = {Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER}
RETRIABLE = {
    Code.TOPIC_AUTHORIZATION_FAILED,  # a right that was taken away may be given back
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
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
INIT_THERE = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS}
"""The right broker was asked; it needs a moment."""
RETRY_S = 0.05
NO_LEADER = "no leader"
BATCH_BYTES = 8 << 20
"""Half of the topic's max.message.bytes, as the sidecar makes it."""
"""Connections to each broker for fences, from this number downwards. A broker answers the requests of a connection one
by one, and a fence is answered when it is on the disks of all replicas."""
LATE_S = 0.5
"""A fence takes milliseconds; after so long it is asked whether another broker has its office now."""
INIT_S = 2.0
"""An attempt at a fence; the owner tries again, and says why it must."""
LARGE_BATCH = 2 << 20
"""Bytes; larger ones are put together in a thread. Up to here that takes the event loop less than a millisecond; a
thread, which has to share the interpreter with it, takes many."""


class WriteLost(Exception):
    """What was appended may or may not be in the log: the state in memory must be rebuilt."""


class Fenced(WriteLost):
    """Another sidecar owns the partition now."""


@dataclass(slots=True)
class _Entry:
    records: Sequence[Encoded]
    serial: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = 0
        for r in self.records:
            self.size += r.size if r.headers else len(r.key) + len(r.value or b"") + RECORD_BYTES


class FencedWriter:
    """`written(serial, offset)` is called in the order of the appends, with the offset of the last record of each,
    -1 if the broker does not say; `failed(why)` once, and then nothing more. Neither is called from within `append`."""

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        topic: str,
        partition: int,
        write_timeout_s: float,
        tasks: Tasks,
        written: Callable[[int, int], None],
        failed: Callable[[WriteLost], None],
        batch_bytes: int = BATCH_BYTES,
        took: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`took`: told how long each batch took to be committed."""
        self.topic = topic
        self.partition = partition
        self.producer_id = -1
        self.producer_epoch = -1
        self.stopped = False
        self._cluster = cluster
        self._appender = appender
        self._write_timeout_s = write_timeout_s
        self._tasks = tasks
        self._on_written = written
        self._on_failed = failed
        self._on_took = took
        self._sequence = 0
        self._queue: list[_Entry] = []
        self._sending: list[_Entry] = []
        self._batch = b""
        self._deadline = 0.0
        self._last = ""
        """What the last try of the batch under way came to."""
        self._task: asyncio.Task[None] | None = None
        self._leader = -1
        self._puts = 0
        """How often a batch was put: only the last time counts."""
        self._most_bytes = batch_bytes
        """Of a batch; the topic may turn out to take less."""
        self._claims = True
        """Nothing is written yet: the claim comes first."""
        self.claim_at = -1
        """Offset of the claim's first record; -1 as long as it is not written, and if it took several batches."""
        self._behind = False
        """Some replica of the partition was not in sync when its leader was looked up."""
        self._marker_due = False
        """A transaction is committed, but the partition may not have been told so yet."""

    @property
    def owner_epoch(self) -> int:
        return self.producer_id << 16 | self.producer_epoch

    @property
    def _transactional_id(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._sending)

    async def init(self) -> None:
        """Shut out everybody before us. Raises WriteLost, saying why, if that does not succeed within INIT_S."""
        deadline = time.monotonic() + INIT_S
        node_id = -1
        while True:
            try:
                if node_id < 0:
                    node_id = await self._cluster.coordinator_node(self._transactional_id, 1)
                res = await self._fence(node_id)
                code, why = res.error_code, name_of(res.error_code)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                code, why = Code.COORDINATOR_NOT_AVAILABLE, str(exc) or "timed out"
            if code == Code.NONE:
                self.producer_id, self.producer_epoch, self._sequence = res.producer_id, res.producer_epoch, 0
                return
            if code not in INIT_RETRIABLE or time.monotonic() > deadline:
                raise WriteLost(f"InitProducerId: {why}{await self._remedy()}")
            if code not in INIT_THERE:
                node_id = -1
            await asyncio.sleep(RETRY_S)

    async def _fence(self, node_id: int) -> ip.InitProducerIdResponse:
        """This broker's answer, as long as it coordinates the transactional id: if it stands still, another one will
        have its office. Raises ConnectionLost, TimeoutError and WireError."""
        asking = asyncio.ensure_future(self._ask_to_fence(node_id))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=LATE_S)
                if not asking.done() and await self._has_moved(node_id) and not asking.done():
                    raise ConnectionLost(f"broker {node_id} is not the coordinator any more")
            return asking.result()
        finally:
            asking.cancel()

    async def _has_moved(self, node_id: int) -> bool:
        try:
            return await self._cluster.coordinator_node(self._transactional_id, 1) != node_id
        except (ConnectionLost, TimeoutError, WireError):
            return False  # nobody says so

    async def _ask_to_fence(self, node_id: int) -> ip.InitProducerIdResponse:
        conn = await self._cluster.lane(node_id, Lane.FENCES, self.partition % FENCES)
        if self.stopped:  # a later attempt may hold the fence by now, and this would shut it out
            raise WriteLost("stopped")
        req = ip.InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=60_000)
        res: ip.InitProducerIdResponse = await conn.request(ip, "InitProducerId", req, high=4)
        return res

    async def _remedy(self) -> str:
        """What an operator can do where no transaction coordinator comes."""
        try:
            if not await self._cluster.has_no(TRANSACTIONS):
                return ""
            view = await self._cluster.refresh([TRANSACTIONS])
        except (ConnectionLost, TimeoutError, WireError):
            return ""
        return (
            f". There is no topic {TRANSACTIONS}: the brokers make it with transaction.state.log.replication.factor "
            f"replicas (3 by default) and cannot with {len(view.brokers)} broker(s). Set that, and "
            "transaction.state.log.min.isr, to no more than the number of brokers, and restart them"
        )

    def append(self, records: Sequence[Encoded], serial: int) -> None:
        """These records are committed together, behind all earlier ones."""
        if not self.stopped:
            self._queue.append(_Entry(records, serial))
            if not self._sending:
                self._next()

    def stop(self) -> None:
        """No more appends; what is under way may still reach the log."""
        self.stopped = True
        self._queue.clear()
        self._sending.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # ---- one batch after the other ------------------------------------------------------------------------
    def _next(self) -> None:
        """Send what has gathered, if nothing is under way. Mostly without a task: that costs more than the batch."""
        if self._sending or not self._queue or self.stopped:
            return
        if self._queue[0].size > self._most_bytes and len(self._queue[0].records) > 1:
            self._sending = [self._queue.pop(0)]
            self._work(self._write_large(self._sending[0]))
            return
        size = taken = 0
        while taken < len(self._queue) and (taken == 0 or size + self._queue[taken].size <= self._most_bytes):
            size += self._queue[taken].size
            taken += 1
        self._sending, self._queue = self._queue[:taken], self._queue[taken:]
        records = [r for e in self._sending for r in e.records]
        self._deadline = time.monotonic() + self._write_timeout_s
        self._last = NO_LEADER
        args = (records, int(time.time() * 1000), self.producer_id, self.producer_epoch, self._sequence)
        self._sequence = (self._sequence + len(records)) & 0x7FFFFFFF
        if size > LARGE_BATCH:
            self._work(self._encode_large(args))
        else:
            self._batch = encode_batch(*args)
            self._put()

    async def _encode_large(self, args: tuple[list[Encoded], int, int, int, int]) -> None:
        self._batch = await asyncio.to_thread(encode_batch, *args)
        self._task = None
        self._put()

    def _put(self) -> None:
        if self._leader < 0:
            self._work(self._find_leader())
        else:
            # Where a broker has died many partitions have new leaders, and replicas that are slow to follow them: no
            # claim is to wait for those of another partition. With all in sync, one request for all is the fastest.
            put = self._appender.put_apart if self._claims and self._behind else self._appender.put
            self._puts += 1
            put(self._leader, self.topic, self.partition, self._batch, partial(self._told, self._puts))

    def late(self, s: float) -> bool:
        """Whether an append has waited for so long."""
        return bool(self._batch) and time.monotonic() > self._deadline - self._write_timeout_s + s

    def led_by(self, node_id: int) -> None:
        """This broker leads the partition now: what was put to another one, which may stand still, is put to it."""
        if self._batch and self._task is None and 0 <= node_id != self._leader:
            self._leader = node_id
            self._put()

    def _told(self, put: int, code: int, offset: int, lost: ConnectionLost | None) -> None:
        if put == self._puts:
            self._answered(code, offset, lost)

    def _answered(self, code: int, offset: int, lost: ConnectionLost | None) -> None:
        """The one place that decides what an answer means. The same batch again is safe: its sequence is the same."""
        if self.stopped:
            return
        if lost is None and code in WRITTEN:
            self._written(offset)
            return
        before, self._last = self._last, str(lost) if lost is not None else name_of(code)
        if lost is not None or self._again(code):
            self._leader = -1
            self._work(self._find_leader(RETRY_S))
        elif code in TOO_LARGE and sum(len(e.records) for e in self._sending) > 1:
            self._in_smaller_batches()
        else:
            self._fail(self._refused(code, before))

    def _again(self, code: int) -> bool:
        return code in RETRIABLE or (code == Code.INVALID_TXN_STATE and self._marker_due)

    def _refused(self, code: int, before: str) -> WriteLost:
        where = f"{self._transactional_id}: {self._last}"
        if code in FENCED:
            return Fenced(where)
        if code in TOO_LARGE:
            where += f": a record of {len(self._batch)} bytes is more than max.message.bytes of {self.topic} allows"
        return WriteLost(f"{where} (next sequence {self._sequence}, epoch {self.producer_epoch}; before: {before})")

    def _in_smaller_batches(self) -> None:
        """The topic takes less than we thought: nothing of this batch is in the log."""
        self._most_bytes = len(self._batch) // 2
        taken, self._sending = self._sending, []
        self._sequence = (self._sequence - sum(len(e.records) for e in taken)) & 0x7FFFFFFF
        self._queue[:0] = taken
        self._next()

    async def _find_leader(self, pause_s: float = 0.0) -> None:
        """Then the batch is put again, until its time is over."""
        while self._leader < 0:
            if time.monotonic() >= self._deadline:
                self._task = None
                self._too_late()
                return
            await asyncio.sleep(pause_s)
            pause_s = RETRY_S
            try:
                self._leader = await self._leader_of_this_topic()
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self._last = str(exc) or "timed out"
            except WriteLost as exc:
                self._task = None
                self._fail(exc)
                return
        self._task = None
        self._put()
        if (left_s := self._deadline - time.monotonic()) < SILENT_S:  # its time may be over before it is answered
            asyncio.get_running_loop().call_later(max(left_s, 0.0), self._unanswered, self._puts)

    def _unanswered(self, put: int) -> None:
        if put == self._puts and self._batch and not self.stopped:
            if self._last == NO_LEADER:
                self._last = f"broker {self._leader}: no answer"
            self._too_late()

    def _too_late(self) -> None:
        self._fail(WriteLost(f"{self.topic}-{self.partition}: {self._last} for {self._write_timeout_s} s"))

    async def _leader_of_this_topic(self) -> int:
        """-1 if there is none. Raises WriteLost if the topic was deleted and made anew: what is read of it is not what
        this sidecar knows. Raises ConnectionLost, TimeoutError, WireError."""
        view = await self._cluster.refresh([self.topic])
        meant = self._appender.pinned.get(self.topic, ZERO_UUID)
        if meant != ZERO_UUID and any(t.name == self.topic and t.id not in (ZERO_UUID, meant) for t in view.topics):
            self._appender.found_another()
            raise WriteLost(f"{self._transactional_id}: {self.topic} is another topic now ({self._last})")
        leaders = view.leaders.get(self.topic, ())
        self._behind = (self.topic, self.partition) in view.behind
        return leaders[self.partition] if self.partition < len(leaders) else -1

    def _written(self, offset: int) -> None:
        sent, self._sending = self._sending, []
        self._on_took(self._write_timeout_s - self._deadline + time.monotonic())
        if self._claims:
            self.claim_at = offset
        self._batch, self._marker_due, self._claims = b"", False, False
        at = offset
        for entry in sent:
            at += len(entry.records)
            self._on_written(entry.serial, at - 1 if offset >= 0 else -1)
        self._next()

    # ---- more than a batch --------------------------------------------------------------------------------
    async def _write_large(self, entry: _Entry) -> None:
        """All of it or nothing, in several batches."""
        place = (self.topic, self.partition)
        txn = Transaction(self._cluster, self._transactional_id, self.producer_id, self.producer_epoch, *place)
        ended = await txn.begin(time.monotonic() + self._write_timeout_s)
        left = list(pieces(entry.records, self._most_bytes))
        offset = -1
        while left and ended.code == Code.NONE:
            piece = left.pop(0)
            ended, base = await self._write_piece(piece)
            if ended.code in TOO_LARGE and len(piece) > 1:
                self._most_bytes = len(self._batch) // 2
                left[:0] = pieces(piece, self._most_bytes)
                ended = Outcome(Code.NONE)
            elif ended.code in WRITTEN:
                self._sequence = (self._sequence + len(piece)) & 0x7FFFFFFF
                offset, ended = base + len(piece) - 1 if base >= 0 else -1, Outcome(Code.NONE)
        if ended.code == Code.NONE:
            ended = await self._commit(txn, time.monotonic() + self._write_timeout_s)
        self._task = None
        before, self._last = self._last, ended.text
        if ended.code != Code.NONE:
            self._fail(self._refused(ended.code, before))
            return
        self._sending, self._batch, self._marker_due, self._claims = [], b"", True, False
        self._on_written(entry.serial, offset)
        self._next()

    async def _commit(self, txn: Transaction, until: float) -> Outcome:
        """What goes out in a transaction goes by name: in another topic it must not be committed."""
        while True:
            try:
                await self._leader_of_this_topic()
                return await txn.commit(until)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                if time.monotonic() >= until:
                    return Outcome(Code.COORDINATOR_NOT_AVAILABLE, str(exc) or "timed out")
            except WriteLost as exc:
                return Outcome(Code.UNKNOWN_TOPIC_ID, str(exc))
            await asyncio.sleep(RETRY_S)

    async def _write_piece(self, piece: Sequence[Encoded]) -> tuple[Outcome, int]:
        """What became of it, and the offset of its first record."""
        until = time.monotonic() + self._write_timeout_s
        who = (self.producer_id, self.producer_epoch, self._sequence)
        self._batch = await asyncio.to_thread(encode_batch, piece, int(time.time() * 1000), *who, True)
        while True:
            code, text = int(Code.LEADER_NOT_AVAILABLE), NO_LEADER
            try:
                if self._leader < 0:
                    self._leader = await self._leader_of_this_topic()
                if self._leader >= 0:
                    where = (self._leader, self.topic, self.partition)
                    code, base = await self._appender.append(*where, self._batch, self._transactional_id)
                    text = name_of(code)
                    if not self._again(code):
                        return Outcome(code, text), base
            except (ConnectionLost, TimeoutError, WireError) as exc:
                text = str(exc) or "timed out"
            except WriteLost as exc:
                return Outcome(Code.UNKNOWN_TOPIC_ID, str(exc)), -1
            self._leader = -1
            if time.monotonic() >= until:
                return Outcome(code, f"{text} for {self._write_timeout_s} s"), -1
            await asyncio.sleep(RETRY_S)

    # ---- the end ------------------------------------------------------------------------------------------
    def _fail(self, why: WriteLost) -> None:
        self.stop()
        self._on_failed(why)

    def _work(self, work: Coroutine[None, None, None]) -> None:
        self._task = self._tasks.spawn(work, f"writer-{self.partition}")
