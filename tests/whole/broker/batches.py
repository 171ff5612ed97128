"""Record batches (version 2) as producers send them and as logs keep them. Source: DefaultRecordBatch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as struct_error
from typing import Any

from crc32c import crc32c

from tests.whole.broker.codes import Err, Refused

HEAD = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and maximum time, producer
id, producer epoch, base sequence, count of records."""
CHECKED_FROM = 21
"""The checksum covers everything from the attributes on."""
COMPRESSION, TRANSACTIONAL, CONTROL = 7, 16, 32
SEQUENCES = 0x7FFFFFFF
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Keys and values are bytes; in the coordinators' own topics they are objects instead of Kafka's encoding."""

    offset: int
    key: Hashable
    value: Any
    headers: Headers = ()
    time_ms: int = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """`base` and `last` stay what they are when compaction takes records out."""

    base: int
    last: int
    leader_epoch: int
    records: tuple[Record, ...]
    time_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: str = ""
    """`commit` or `abort` of a control batch."""
    size: int = 0

    @property
    def count(self) -> int:
        return self.last - self.base + 1

    @property
    def last_sequence(self) -> int:
        """Sequences go on with 0 behind the highest one."""
        return -1 if self.sequence < 0 else (self.sequence + self.count - 1) & SEQUENCES

    def at(self, base: int, leader_epoch: int) -> Batch:
        moved = tuple(replace(r, offset=base + i) for i, r in enumerate(self.records))
        return replace(self, base=base, last=base + self.count - 1, leader_epoch=leader_epoch, records=moved)


def of_records(
    records: Sequence[tuple[Hashable, Any]], time_ms: int, producer_id: int = -1, producer_epoch: int = -1
) -> Batch:
    """A batch that a coordinator writes."""
    rows = tuple(Record(i, k, v, (), time_ms) for i, (k, v) in enumerate(records))
    transactional = producer_id >= 0
    return Batch(0, len(rows) - 1, -1, rows, time_ms, producer_id, producer_epoch, -1, transactional)


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


def readable(raw: bytes) -> bool:
    """Returns whether this is a batch of version 2, as far as its head shows."""
    return len(raw) >= HEAD.size and raw[16] == 2


def decode(raw: bytes) -> Batch:
    """Decodes the batch in one partition of a Produce request: exactly one. Raises Refused."""
    try:
        head = HEAD.unpack_from(raw)
    except struct_error:
        raise Refused(Err.CORRUPT_MESSAGE) from None
    _, size, _, magic, checksum, attributes, last, base_time, max_time, producer_id, epoch, sequence, count = head
    if magic != 2 or size != len(raw) - 12 or checksum != crc32c(raw[CHECKED_FROM:]):
        raise Refused(Err.CORRUPT_MESSAGE)
    if attributes & COMPRESSION:
        raise Refused(Err.UNSUPPORTED_COMPRESSION_TYPE)  # nothing in the simulation compresses
    if attributes & CONTROL or last != count - 1 or count < 1:
        raise Refused(Err.INVALID_RECORD)
    try:
        records = _records(raw, count, base_time)
    except (IndexError, ValueError):
        raise Refused(Err.INVALID_RECORD) from None
    return Batch(
        0, last, -1, records, max_time, producer_id, epoch, sequence, bool(attributes & TRANSACTIONAL), "", len(raw)
    )


def _records(raw: bytes, count: int, base_time: int) -> tuple[Record, ...]:
    records: list[Record] = []
    at = HEAD.size
    for expected in range(count):
        size, at = _varint(raw, at)
        end = at + size
        time_delta, at = _varint(raw, at + 1)
        delta, at = _varint(raw, at)
        key, at = _field(raw, at)
        value, at = _field(raw, at)
        number, at = _varint(raw, at)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(number):
            name, at = _field(raw, at)
            content, at = _field(raw, at)
            headers.append(((name or b"").decode(), content))
        if delta != expected or at != end or end > len(raw):
            raise ValueError("a record does not fit")
        records.append(Record(delta, key, value, tuple(headers), base_time + time_delta))
    return tuple(records)
