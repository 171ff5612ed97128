"""The bytes that a session has to send to its client or to its broker, and the memory that they take.

A transport keeps an object whole until its last byte has left, and knows only how many bytes are left; that of TLS does
not count the bytes that it has encrypted. So it gets pieces, and the next one when the kernel has taken the one before.
All other bytes stay here, and are counted whole.
"""

from __future__ import annotations

import asyncio
from collections import deque

PIECE_BYTES = 1 << 16
TLS_BYTES = 1 << 14
"""Bytes that a TLS transport may keep before it is full: it may report the end of its handshake before that has left.
Other transports keep nothing."""


class Outbox:
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        """The transport; None before it is there. What is sent meanwhile waits."""
        self.full = False
        """Whether the other side does not take what it was sent."""
        self.kept_bytes = 0
        self.reply = False
        """Whether a reply of the sidecar's own is part of `kept_bytes`; the session sets it."""
        self._waiting: deque[bytes] = deque()
        self._at = 0
        """Bytes of the first waiting object that are sent."""

    @property
    def waiting(self) -> bool:
        """Whether the transport has not been given all yet."""
        return bool(self._waiting)

    @property
    def left_bytes(self) -> int:
        """Number of bytes that have not left yet, those at the transport included."""
        at_transport = self.transport.get_write_buffer_size() if self.transport is not None else 0
        return sum(map(len, self._waiting)) - self._at + at_transport

    def open(self, transport: asyncio.Transport) -> None:
        tls = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=TLS_BYTES if tls else 0, low=0)
        self.transport = transport
        self._go_on()

    def write(self, data: bytes) -> None:
        if self.transport is None or self.full or len(data) > PIECE_BYTES:
            self.kept_bytes += len(data)
            self._waiting.append(data)
            self._go_on()
            return
        self.transport.write(data)
        if self.full:  # `paused` was called meanwhile
            self.kept_bytes = len(data)

    def paused(self) -> None:
        """Called when the transport has as much as it takes."""
        self.full = True

    def resumed(self) -> bool:
        """Called when the transport has sent all that it had. Returns whether it takes more than what has waited."""
        self.full = False
        self._go_on()
        return not self.full

    def end(self) -> None:
        """Closes the transport after all that is left has been sent. Nothing more is written after this."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._waiting:
            first = memoryview(self._waiting.popleft())[self._at :]
            transport.writelines([first, *self._waiting])
            self.drop()
        transport.close()

    def drop(self) -> None:
        """Discards what waits."""
        self._waiting.clear()
        self._at = 0

    def forget(self) -> None:
        """Drops the closed transport: one of TLS holds the protocol that it has read for (`Upstream._let_go`)."""
        self.transport = None

    def _go_on(self) -> None:
        transport, waiting, last = self.transport, self._waiting, 0
        if transport is None:
            return
        while waiting and not self.full:
            first = waiting[0]
            piece = first[self._at : self._at + PIECE_BYTES]
            self._at += len(piece)
            if self._at >= len(first):
                waiting.popleft()
                self._at = 0
            last = len(piece)
            transport.write(piece)
        if not self.full:
            self.kept_bytes = 0
        elif last:
            self.kept_bytes = sum(map(len, waiting)) + last
