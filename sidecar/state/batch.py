"""Record batch v2: what a producer sends. Source: Kafka's DefaultRecordBatch and DefaultRecord."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from crc32c import crc32c

from sidecar.kernel.twin import zigzag
from sidecar.state.codec import Encoded


def encode_batch(
    records: Sequence[Encoded], time_ms: int, producer_id: int, producer_epoch: int, sequence: int
) -> bytes:
    """One uncompressed, non-transactional batch; all records carry the time `time_ms` (create time)."""
    body = bytearray()
    for i, r in enumerate(records):
        rec = bytearray(b"\0")  # attributes
        rec.append(0)  # timestamp delta
        zigzag(rec, i)
        zigzag(rec, len(r.key))
        rec += r.key
        if r.value is None:
            zigzag(rec, -1)
        else:
            zigzag(rec, len(r.value))
            rec += r.value
        zigzag(rec, len(r.headers))
        for name, value in r.headers:
            raw = name.encode()
            zigzag(rec, len(raw))
            rec += raw
            zigzag(rec, len(value))
            rec += value
        zigzag(body, len(rec))
        body += rec
    tail = pack(
        ">hiqqqhii", 0, len(records) - 1, time_ms, time_ms, producer_id, producer_epoch, sequence, len(records)
    ) + bytes(body)
    head = pack(">ibI", -1, 2, crc32c(tail))
    return pack(">qi", 0, len(head) + len(tail)) + head + tail
