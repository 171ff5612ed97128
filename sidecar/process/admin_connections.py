"""Connections to the admin endpoint. There are few places, and a probe must always find one: so a new connection is let
in, and where all places are taken another one gives way. It is one of the address that has most places: first one
without an open request, and among these the one that has been silent for longest."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from sidecar.link.eviction import gives_way
from sidecar.link.ports import Figures
from sidecar.process.sections import AdminAccess


class _Connection:
    """A connection, from its first moment on."""

    def __init__(self, sock: socket.socket, host: str, at_s: float) -> None:
        self.sock = sock
        self.host = host
        self.at_s = at_s
        """Monotonic time at which it was made, or at which its last request came, in seconds."""
        self.asks = False
        """Whether a request is being answered."""
        self.protocol: Any = None
        """The HTTP protocol on it; None until the transport is there."""
        self.coming: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        return self.coming is None and (self.protocol is None or self.protocol.transport is None)


class AdminConnections:
    """The open connections. `new()`: a protocol for one connection. It closes with its transport, and has that as
    `transport` until then."""

    def __init__(
        self,
        settings: AdminAccess,
        context: ssl.SSLContext | None,
        new: Callable[[], asyncio.BaseProtocol],
        figures: Figures,
    ) -> None:
        self._settings = settings
        self._context = context
        self._new = new
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._open: dict[_Connection, None] = {}

    def arrived(self, sock: socket.socket, host: str) -> None:
        for ended in [c for c in self._open if c.over]:
            self._forget(ended)
        if len(self._open) >= self._settings.connections:
            oldest = gives_way(self._open, lambda c: c.host, lambda c: (c.asks, c.at_s))
            self._end(oldest, "crowded_out")
        connection = _Connection(sock, host, self._loop.time())
        self._open[connection] = None
        first_s = self._settings.first_request_timeout_ms / 1000
        connection.timer = self._loop.call_later(first_s, self._end, connection, "first_request_timeout")
        connection.coming = self._loop.create_task(self._come(connection, first_s))

    async def _come(self, connection: _Connection, first_s: float) -> None:
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {"ssl": self._context, "ssl_handshake_timeout": first_s}
        protocol: Any = self._new()  # with TLS, uvloop gives back its own in the place of this one
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection.sock, **tls)
            connection.protocol = protocol
        except OSError:  # ssl.SSLError is one, too
            self._end(connection, "handshake")
        finally:
            connection.coming = None

    # ---- requests -----------------------------------------------------------------------------------------
    def asked(self, protocol: Any) -> None:
        """Restarts the connection's timer: a request has come. Its bytes and the reading of its answer may take
        `request_timeout_ms` together."""
        if (connection := self._of(protocol)) is None:
            return
        connection.asks, connection.at_s = True, self._loop.time()
        if connection.timer is not None:
            connection.timer.cancel()
        wait_s = self._settings.request_timeout_ms / 1000
        connection.timer = self._loop.call_later(wait_s, self._end, connection, "request_timeout")

    def answered(self, protocol: Any) -> None:
        if (connection := self._of(protocol)) is not None:
            connection.asks = False

    def _of(self, protocol: Any) -> _Connection | None:
        return next((c for c in self._open if c.protocol is protocol), None)

    # ---- ends ---------------------------------------------------------------------------------------------
    def _end(self, connection: _Connection, cause: str) -> None:
        if connection not in self._open:
            return
        if not connection.over:
            self._figures("admin_closed", cause).inc()
        self._forget(connection)
        self._cut(connection)

    def _forget(self, connection: _Connection) -> None:
        del self._open[connection]
        if connection.timer is not None:
            connection.timer.cancel()

    def close(self) -> None:
        """Ends all connections at once. A client that reads nothing would hold up the end of the process."""
        for connection in list(self._open):
            self._forget(connection)
            self._cut(connection)

    def _cut(self, connection: _Connection) -> None:
        if connection.protocol is not None and connection.protocol.transport is not None:
            connection.protocol.transport.abort()
        elif connection.coming is not None and connection.coming is not asyncio.current_task(self._loop):
            connection.coming.cancel()
