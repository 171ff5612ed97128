"""Tells a Produce without an answer (acks=0) by the first bytes of it that have come."""

from __future__ import annotations

from sidecar.wire.apis import PRODUCE_FLEXIBLE_FROM
from sidecar.wire.frames import PREFIX, produce_acks
from sidecar.wire.primitives import WireError

PRODUCE_HEAD = 140_000
"""Bytes within which the acks of a Produce must come. Client id, tags and transactional id come before them and take 64
KiB at most."""


class Acks:
    """The acks of one connection's requests."""

    def __init__(self) -> None:
        self._again_from = 0
        """Bytes of the head from which it is read again: twice as many, so that many small pieces cost no more."""

    def silent(self, buf: bytes | bytearray, pos: int, version: int, size: int) -> bool | None:
        """Returns whether this Produce gets no response (acks=0), or None if that takes more bytes."""
        most = min(4 + size, PREFIX.size + PRODUCE_HEAD)
        n = min(len(buf) - pos, most)
        if n < min(self._again_from, most):
            return None
        self._again_from = 0
        try:
            acks = produce_acks(bytes(buf[pos + PREFIX.size : pos + n]), version, PRODUCE_FLEXIBLE_FROM)
        except WireError:
            return False  # the broker will refuse it, and that is an answer or the end of the connection
        if acks is None and n < most:
            self._again_from = 2 * n
            return None
        return acks == 0
