"""Record batch v2: what a producer sends. Source: Kafka's DefaultRecordBatch and DefaultRecord."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from crc32c import crc32c

from sidecar.state.codec import Encoded


def _varint(out: bytearray, n: int) -> None:
    n = (n << 1) ^ (n >> 63)
    while n > 127:
        out.append((n & 0x7F) | 0x80)
        n >>= 7
    out.append(n)


def encode_batch(
    records: Sequence[Encoded], time_ms: int, producer_id: int, producer_epoch: int, sequence: int
) -> bytes:
    """One uncompressed, non-transactional batch; all records carry the time `time_ms` (create time)."""
    body = bytearray()
    for i, r in enumerate(records):
        rec = bytearray(b"\0")  # attributes
        rec.append(0)  # timestamp delta
        _varint(rec, i)
        _varint(rec, len(r.key))
        rec += r.key
        if r.value is None:
            _varint(rec, -1)
        else:
            _varint(rec, len(r.value))
            rec += r.value
        _varint(rec, len(r.headers))
        for name, value in r.headers:
            raw = name.encode()
            _varint(rec, len(raw))
            rec += raw
            _varint(rec, len(value))
            rec += value
        _varint(body, len(rec))
        body += rec
    tail = pack(
        ">hiqqqhii", 0, len(records) - 1, time_ms, time_ms, producer_id, producer_epoch, sequence, len(records)
    ) + bytes(body)
    head = pack(">ibI", -1, 2, crc32c(tail))
    return pack(">qi", 0, len(head) + len(tail)) + head + tail
