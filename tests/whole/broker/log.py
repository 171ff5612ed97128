"""The log of one replica, with the producers it knows: what a disk keeps when the broker is killed.

Which appends are refused follows ProducerAppendInfo and ProducerStateManager: a partition learns of a producer from its
batches only, so a producer that it does not know may begin with any sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace

from tests.whole.broker.batches import SEQUENCES, Batch, Record
from tests.whole.broker.codes import Err, Refused

KEPT = 5
"""Batches of each producer that are remembered, so that a second copy is recognised."""


@dataclass(slots=True)
class Producer:
    epoch: int
    last_time_ms: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """First and last sequence and base offset of the last batches."""
    open_from: int = -1
    """First offset of its open transaction."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1


class Log:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.producers: dict[int, Producer] = {}
        self.open: dict[int, int] = {}
        """First offset of the open transaction of each producer that has one."""
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, and that of the marker, of each aborted transaction."""
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs, each with its first offset."""

    # ---- appending ------------------------------------------------------------------------------------------
    def check(self, batch: Batch, now_ms: int, expire_ms: int) -> int | None:
        """Whether a client's batch may be appended. Returns the offset of an earlier copy, if there is one. Raises
        Refused."""
        if batch.producer_id < 0:
            return None
        known = self.producers.get(batch.producer_id)
        if known is not None and known.open_from < 0 and now_ms - known.last_time_ms >= expire_ms:
            del self.producers[batch.producer_id]
            known = None
        if known is None:
            return None
        if batch.producer_epoch < known.epoch:
            raise Refused(Err.INVALID_PRODUCER_EPOCH)
        if batch.producer_epoch > known.epoch:
            if batch.sequence != 0:
                raise Refused(Err.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return None
        for first, last, offset in known.batches:
            if (first, last) == (batch.sequence, batch.last_sequence):
                return offset
        if not known.batches:
            return None if batch.sequence == 0 else self._out_of_order()
        if batch.sequence != (known.last_sequence + 1) & SEQUENCES:
            self._out_of_order()
        if known.open_from >= 0 and not batch.transactional:
            raise Refused(Err.INVALID_TXN_STATE)
        return None

    @staticmethod
    def _out_of_order() -> None:
        raise Refused(Err.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def append(self, batch: Batch, leader_epoch: int) -> Batch:
        """As the leader: offsets are given here."""
        placed = batch.at(self.end, leader_epoch)
        self.take(placed)
        return placed

    def take(self, batch: Batch) -> None:
        """As it stands in the leader's log."""
        self.batches.append(batch)
        self.end = batch.last + 1
        if not self.epochs or batch.leader_epoch > self.epochs[-1][0]:
            self.epochs.append((batch.leader_epoch, batch.base))
        self._learn(batch)

    def _learn(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        known = self.producers.get(batch.producer_id)
        if known is None or batch.producer_epoch > known.epoch:
            opened = -1 if known is None else known.open_from
            known = self.producers[batch.producer_id] = Producer(batch.producer_epoch, batch.time_ms, open_from=opened)
        known.last_time_ms = batch.time_ms
        if batch.marker:
            if known.open_from >= 0 and batch.marker == "abort":
                self.aborted.append((batch.producer_id, known.open_from, batch.base))
            known.open_from = -1
            self.open.pop(batch.producer_id, None)
            return
        if batch.sequence >= 0:
            known.batches.append((batch.sequence, batch.last_sequence, batch.base))
        if batch.transactional and known.open_from < 0:
            known.open_from = self.open[batch.producer_id] = batch.base

    # ---- following ------------------------------------------------------------------------------------------
    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to this one, and where it ends here (OffsetsForLeaderEpoch)."""
        found = bisect_right(self.epochs, (epoch, 1 << 62)) - 1
        if found < 0:
            return -1, self.start
        end = self.epochs[found + 1][1] if found + 1 < len(self.epochs) else self.end
        return self.epochs[found][0], end

    def agree_with(self, leader: Log) -> None:
        """Cut off what the leader does not have (KIP-101, KIP-279)."""
        while self.epochs:
            epoch, _ = self.epochs[-1]
            found, end = leader.epoch_end(epoch)
            mine, own_end = self.epoch_end(found)
            if found == epoch:
                self.truncate(min(end, self.end))
                return
            if mine < 0 or found < 0:
                self.truncate(self.start)
                return
            self.truncate(min(end, own_end))
            if mine == found:
                return

    def truncate(self, to: int) -> None:
        if to >= self.end:
            return
        while self.batches and self.batches[-1].last >= to:
            self.batches.pop()
        while self.epochs and self.epochs[-1][1] >= to:
            self.epochs.pop()
        self.end = to
        self.producers, self.open, self.aborted = {}, {}, []
        for batch in self.batches:
            self._learn(batch)

    # ---- reading --------------------------------------------------------------------------------------------
    def stable(self, high_watermark: int) -> int:
        """Up to here everything is committed, or belongs to a transaction that has ended (the last stable offset)."""
        return min(high_watermark, *self.open.values()) if self.open else high_watermark

    def is_aborted(self, batch: Batch) -> bool:
        if not batch.transactional or not self.aborted:
            return False
        return any(i == batch.producer_id and first <= batch.base < last for i, first, last in self.aborted)

    def position(self, offset: int) -> int:
        """Index of the first batch that ends at or behind this offset."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def compact(self, below: int, tombstones_since_ms: int, clean_until_ms: int) -> None:
        """Keep the last value of each key; nothing at or behind `below`, or younger than `clean_until_ms`, is touched.
        Tombstones are kept that are younger than `tombstones_since_ms`."""
        below = dirty = self.stable(below)
        for batch in self.batches:
            if batch.last >= below or batch.time_ms > clean_until_ms:
                dirty = min(dirty, batch.base)
                break
        last: dict[object, int] = {}
        for batch in self.batches:
            if batch.last < dirty and not batch.marker and not self.is_aborted(batch):
                for r in batch.records:
                    last[r.key] = r.offset
        newest = {b.producer_id: b.base for b in self.batches if b.producer_id >= 0}
        kept: list[Batch] = []
        for batch in self.batches:
            if batch.last >= dirty or batch.marker:
                kept.append(batch)
                continue
            rows = tuple(
                r
                for r in batch.records
                if last.get(r.key) == r.offset and (r.value is not None or r.time_ms > tombstones_since_ms)
            )
            if rows or newest.get(batch.producer_id) == batch.base:
                kept.append(batch if len(rows) == len(batch.records) else replace(batch, records=rows))
        self.batches = kept

    @staticmethod
    def _kept(r: Record, last: dict[object, int], tombstones_since_ms: int) -> bool:
        return last[r.key] == r.offset and (r.value is not None or r.time_ms > tombstones_since_ms)
