"""Connections to the admin endpoint. There are few places, and a probe must always find one: a newcomer is let in, and
where all places are taken another one gives way, of the address that has most of them: first one that asks nothing at
the moment, and of those the one that has been silent for longest.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from sidecar.link.crowd import gives_way
from sidecar.link.ports import Figures
from sidecar.process.sections import AdminAccess


class _Visit:
    """A connection, from its first moment on."""

    def __init__(self, sock: socket.socket, host: str, at_s: float) -> None:
        self.sock = sock
        self.host = host
        self.at_s = at_s
        """When it was made, or its last request came."""
        self.asks = False
        """A request is being answered."""
        self.protocol: Any = None
        """Speaks HTTP on it; None until the transport is there."""
        self.coming: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        return self.coming is None and (self.protocol is None or self.protocol.transport is None)


class AdminDoor:
    """`new()`: a protocol for one connection. It closes with its transport, and has that as `transport` until then."""

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
        self._visits: dict[_Visit, None] = {}

    def arrived(self, sock: socket.socket, host: str) -> None:
        for gone in [v for v in self._visits if v.over]:
            self._forget(gone)
        if len(self._visits) >= self._settings.connections:
            oldest = gives_way(self._visits, lambda v: v.host, lambda v: (v.asks, v.at_s))
            self._end(oldest, "crowded_out")
        visit = _Visit(sock, host, self._loop.time())
        self._visits[visit] = None
        first_s = self._settings.first_request_timeout_ms / 1000
        visit.timer = self._loop.call_later(first_s, self._end, visit, "first_request_timeout")
        visit.coming = self._loop.create_task(self._come(visit, first_s))

    async def _come(self, visit: _Visit, first_s: float) -> None:
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {"ssl": self._context, "ssl_handshake_timeout": first_s}
        protocol: Any = self._new()  # with TLS, uvloop gives back its own in the place of this one
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, visit.sock, **tls)
            visit.protocol = protocol
        except OSError:  # ssl.SSLError is one, too
            self._end(visit, "handshake")
        finally:
            visit.coming = None

    # ---- requests -----------------------------------------------------------------------------------------
    def asked(self, protocol: Any) -> None:
        """A request has come. Whoever sends it byte by byte, or reads its answer so, has the time for one, no more."""
        if (visit := self._of(protocol)) is None:
            return
        visit.asks, visit.at_s = True, self._loop.time()
        if visit.timer is not None:
            visit.timer.cancel()
        wait_s = self._settings.request_timeout_ms / 1000
        visit.timer = self._loop.call_later(wait_s, self._end, visit, "request_timeout")

    def answered(self, protocol: Any) -> None:
        if (visit := self._of(protocol)) is not None:
            visit.asks = False

    def _of(self, protocol: Any) -> _Visit | None:
        return next((v for v in self._visits if v.protocol is protocol), None)

    # ---- ends ---------------------------------------------------------------------------------------------
    def _end(self, visit: _Visit, cause: str) -> None:
        if visit not in self._visits:
            return
        if not visit.over:
            self._figures("admin_closed", cause).inc()
        self._forget(visit)
        if visit.protocol is not None and visit.protocol.transport is not None:
            visit.protocol.transport.abort()
        elif visit.coming is not None and visit.coming is not asyncio.current_task(self._loop):
            visit.coming.cancel()

    def _forget(self, visit: _Visit) -> None:
        del self._visits[visit]
        if visit.timer is not None:
            visit.timer.cancel()

    def close(self) -> None:
        for visit in list(self._visits):
            self._forget(visit)
            if visit.coming is not None:
                visit.coming.cancel()
