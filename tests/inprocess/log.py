"""One partition of a topic in memory: decodes the batches of producers and judges their sequence numbers.

The rules are those of Kafka's ProducerStateManager: a batch of an older epoch is refused, a batch that was appended
already is answered as before, and a batch that does not continue the last one is out of order. As in Kafka a partition
learns of a new epoch only from the first batch that carries it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from struct import Struct

from crc32c import crc32c

from sidecar.core.vocabulary.errors import Code

HEAD = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and maximum time, producer
id, producer epoch, base sequence, count of records."""
CHECKED_FROM = 21
"""The checksum covers everything from the attributes on."""
TRANSACTIONAL = 16
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
KEPT = 5
"""Batches that are remembered of each producer, to recognise a second copy."""
Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Stored:
    """One record as it stands in the log."""

    offset: int
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class Batch:
    """A batch as a producer sent it."""

    producer_id: int
    epoch: int
    sequence: int
    time_ms: int
    transactional: bool
    records: tuple[tuple[bytes, bytes | None, Headers], ...]


@dataclass
class _Producer:
    epoch: int
    next_sequence: int = 0
    open_from: int = -1
    """Offset of the first record of its transaction, if one is open here."""
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Sequence, count and offset of the last batches."""


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at


def _field(raw: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(raw, at)
    return (None, at) if size < 0 else (raw[at : at + size], at + size)


def decode_batch(raw: bytes) -> Batch:
    """Raises ValueError if these bytes are no batch of version 2 with a correct checksum."""
    head = HEAD.unpack_from(raw)
    (_, size, _, magic, checksum, attributes, last, time_ms, _, producer_id, epoch, sequence, count) = head
    if magic != 2 or size != len(raw) - 12 or checksum != crc32c(raw[CHECKED_FROM:]) or last != count - 1:
        raise ValueError("this is no batch")
    records: list[tuple[bytes, bytes | None, Headers]] = []
    at = HEAD.size
    for delta in range(count):
        size, at = _varint(raw, at)
        end = at + size
        _, at = _varint(raw, at + 1)
        found, at = _varint(raw, at)
        key, at = _field(raw, at)
        value, at = _field(raw, at)
        number, at = _varint(raw, at)
        headers: list[tuple[str, bytes]] = []
        for _ in range(number):
            name, at = _field(raw, at)
            content, at = _field(raw, at)
            headers.append(((name or b"").decode(), content or b""))
        if found != delta or at != end:
            raise ValueError(f"record {delta} does not fit")
        records.append((key or b"", value, tuple(headers)))
    transactional = bool(attributes & TRANSACTIONAL)
    return Batch(producer_id, epoch, sequence, time_ms, transactional, tuple(records))


class PartitionLog:
    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.batches: list[Batch] = []
        self.most_bytes = 16 << 20
        """max.message.bytes."""
        self.hidden: set[int] = set()
        """Offsets that readers never see: of markers, and of what was aborted."""
        self._producers: dict[int, _Producer] = {}
        self._writers: list[int] = []
        """The producer id of each record."""

    @property
    def seen_to(self) -> int:
        """Behind the last record that a reader sees."""
        return max((r.offset + 1 for r in self.records if r.offset not in self.hidden), default=0)

    def append(self, raw: bytes, named: bool = False) -> tuple[int, int]:
        """Returns the error code and the offset of the first record."""
        batch = decode_batch(raw)
        if len(raw) > self.most_bytes:
            return Code.MESSAGE_TOO_LARGE, -1
        if batch.transactional and not named:
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1
        if batch.producer_id < 0:
            return self._store(batch)
        known = self._producers.get(batch.producer_id)
        if known is None or batch.epoch > known.epoch:
            if batch.sequence != 0:
                return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known = self._producers[batch.producer_id] = _Producer(batch.epoch)
        if batch.epoch < known.epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        for sequence, count, offset in known.recent:
            if (sequence, count) == (batch.sequence, len(batch.records)):
                return Code.NONE, offset
        if batch.sequence != known.next_sequence:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if known.open_from >= 0 and not batch.transactional:
            return Code.INVALID_TXN_STATE, -1
        if batch.transactional and known.open_from < 0:
            known.open_from = len(self.records)
        known.next_sequence = (batch.sequence + len(batch.records)) & 0x7FFFFFFF
        code, offset = self._store(batch)
        known.recent.append((batch.sequence, len(batch.records), offset))
        return code, offset

    @property
    def stable(self) -> int:
        """The last stable offset: readers of what is committed come no further."""
        return min((p.open_from for p in self._producers.values() if p.open_from >= 0), default=len(self.records))

    def end(self, producer_id: int, epoch: int, commit: bool) -> None:
        """The marker of the coordinator: the transaction that is open here is committed or aborted."""
        known = self._producers.setdefault(producer_id, _Producer(epoch))
        if epoch > known.epoch:
            known.epoch, known.next_sequence = epoch, 0
            known.recent.clear()
        if known.open_from >= 0:
            if not commit:
                self.hidden |= {
                    r.offset for r in self.records[known.open_from :] if self._writers[r.offset] == producer_id
                }
            known.open_from = -1
            self.hidden.add(len(self.records))
            self._writers.append(-1)
            self.records.append(Stored(len(self.records), b"", None))

    def _store(self, batch: Batch) -> tuple[int, int]:
        base = len(self.records)
        self.batches.append(batch)
        self._writers += [batch.producer_id] * len(batch.records)
        self.records += [Stored(base + i, *record) for i, record in enumerate(batch.records)]
        return Code.NONE, base
