"""Record batches (v2) as a producer sends them. Source: Kafka's DefaultRecordBatch and DefaultRecord."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from crc32c import crc32c

from sidecar.native import records as encode_records
from sidecar.state.codec import Encoded

TRANSACTIONAL = 16
"""Bit of the attributes."""


def encode_batch(
    records: Sequence[Encoded],
    time_ms: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    transactional: bool = False,
) -> bytes:
    """Returns one encoded, uncompressed batch. All its records have the create time `time_ms`."""
    attributes = TRANSACTIONAL if transactional else 0
    body = encode_records(list(records))
    tail = (
        pack(
            ">hiqqqhii",
            attributes,
            len(records) - 1,
            time_ms,
            time_ms,
            producer_id,
            producer_epoch,
            sequence,
            len(records),
        )
        + body
    )
    head = pack(">ibI", -1, 2, crc32c(tail))
    return pack(">qi", 0, len(head) + len(tail)) + head + tail
