"""Sends the TLS alert to a client whose handshake fails, so the client learns the reason.

OpenSSL leaves the alert in the outgoing buffer. Neither uvloop nor asyncio before its repair (python/cpython#98078)
sends it before the connection closes, so it goes to the socket from here.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from contextvars import ContextVar

ARRIVING: ContextVar[socket.socket] = ContextVar("ARRIVING")
"""The socket for which a loop is to begin a handshake."""


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO | None = None
    sock: socket.socket | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.sock is not None and self.outgoing is not None:
                with suppress(OSError):  # it has gone already
                    self.sock.send(self.outgoing.read())
            raise
        self.outgoing = self.sock = None


class ServerContext(ssl.SSLContext):
    sslobject_class = _Handshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Handshake)
        made.outgoing, made.sock = outgoing, ARRIVING.get(None)
        return made
