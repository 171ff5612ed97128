"""Sockets in memory: what was written is kept, and reading can be paused as asyncio pauses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from sidecar.wire.frames import PREFIX, SIZE, header_end
from tests.inprocess.broker import FakeBrokers, flexible
from tests.inprocess.cluster import Line, unseen


class Connection(Protocol):
    """A protocol of asyncio that gets its bytes as they come, whatever its base is."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def data_received(self, data: bytes, /) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class MemoryTransport(asyncio.Transport):
    """One end of a connection. `feed` is what the other end sends; while reading is paused it waits."""

    def __init__(self, protocol: Connection, peer: tuple[str, int] = ("10.0.0.9", 50_000)) -> None:
        super().__init__({"peername": peer})
        self.protocol = protocol
        self.written = bytearray()
        self.reading = True
        self.eof = False
        self.closing = False
        self.unread = 0
        """Bytes that the other end has not read yet; set by a test."""
        self.on_write: Callable[[bytes], None] | None = None
        """Called with all bytes that are written."""
        self._unread: list[bytes] = []

    # ---- what the other end does ----------------------------------------------------------------------------
    def feed(self, data: bytes) -> None:
        if self.closing:
            return
        if self.reading:
            self.protocol.data_received(data)
        else:
            self._unread.append(data)

    def feed_eof(self) -> None:
        """The other end sends no more."""
        if not self.protocol.eof_received():
            self.close()

    def lose(self, exc: Exception | None = None) -> None:
        """Breaks the connection at once."""
        if not self.closing:
            self.closing = True
            self._connection_lost(exc)

    def _connection_lost(self, exc: Exception | None) -> None:
        """Drops the reference to the protocol, as asyncio and uvloop do."""
        protocol = self.protocol
        del self.protocol
        protocol.connection_lost(exc)

    def taken(self) -> bytes:
        """Returns the bytes written since the last call."""
        out = bytes(self.written)
        self.written.clear()
        return out

    # ---- asyncio.Transport ------------------------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closing:
            return
        self.written += data
        if self.on_write is not None:
            self.on_write(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.eof = True

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        while self.reading and self._unread and not self.closing:
            self.protocol.data_received(self._unread.pop(0))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._connection_lost, None)

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing, because the transport is never full by itself: a test calls `pause_writing` of the protocol."""


class Upstream:
    """A client's own connection to the broker behind the sidecar: the broker reads what the session writes."""

    def __init__(self, brokers: FakeBrokers, node_id: int, protocol: Connection) -> None:
        self.transport = MemoryTransport(protocol, brokers.address(node_id))
        self.transport.on_write = self._written
        self._line = Line(brokers, node_id, self.transport.feed, self.transport.lose)
        self._bytes = bytearray()
        protocol.connection_made(self.transport)

    def _written(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= 4:
            (size,) = SIZE.unpack_from(self._bytes)
            if len(self._bytes) < 4 + size:
                return
            frame = bytes(self._bytes[: 4 + size])
            del self._bytes[: 4 + size]
            _, api, version, correlation = PREFIX.unpack_from(frame)
            with unseen():
                _, pos = header_end(frame, PREFIX.size, flexible(api, version))
            self._line.put(api, version, frame, pos, correlation)


def frames(data: bytes) -> list[bytes]:
    """The whole frames in these bytes, each with its size."""
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 4:
        (size,) = SIZE.unpack_from(data, at)
        if len(data) - at < 4 + size:
            break
        found.append(data[at : at + 4 + size])
        at += 4 + size
    return found
