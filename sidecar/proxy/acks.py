"""Tells a Produce without an answer (acks=0) by the first bytes of it that have come."""

from __future__ import annotations

from sidecar.wire.apis import PRODUCE_FLEXIBLE_FROM
from sidecar.wire.frames import PREFIX, produce_acks
from sidecar.wire.primitives import WireError

PRODUCE_HEAD = 140_000
"""Bytes within which the acks of a Produce must come. Client id, tags and transactional id come before them and take 64
KiB at most."""


def is_silent(buf: bytes | bytearray, pos: int, version: int, size: int) -> bool | None:
    """Returns whether this Produce gets no response (acks=0), or None if that takes more bytes."""
    head = bytes(buf[pos + PREFIX.size : min(len(buf), pos + PREFIX.size + PRODUCE_HEAD, pos + 4 + size)])
    try:
        acks = produce_acks(head, version, PRODUCE_FLEXIBLE_FROM)
    except WireError:
        return False  # the broker will refuse it, and that is an answer or the end of the connection
    if acks is None:
        return None if len(buf) - pos < min(4 + size, PREFIX.size + PRODUCE_HEAD) else False
    return acks == 0
