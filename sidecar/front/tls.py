"""A listener that ends TLS. A connection becomes a session once its handshake is done.

A handshake takes a millisecond of the event loop, so it must be earned. Before it begins, the connection is let in by
the door (limits of connections, of an address, of a second), and its first bytes are there and look like TLS; until
then it costs a socket. One begins in each turn of the loop, and their number is limited. Further connections wait in
line, and the oldest handshake gives its place up once it has had it for `CROWDED_S`: a live client needs less.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable

from sidecar.front.accepting import Acceptor
from sidecar.front.certificates import Certificates
from sidecar.front.refusals import ARRIVING
from sidecar.front.session import Session
from sidecar.front.socket_server import SocketServer
from sidecar.link.ports import Figures, Logger, Tasks

CROWDED_S = 0.5
LOOPS_S = 1.0
"""The loop has a limit of its own for a handshake, which comes after ours and looks like a client
that has gone."""
SHUTDOWN_S = 5.0
"""Time for a client to answer TLS's close_notify."""
HANDSHAKE = 0x16
"""Type of TLS's handshake records, the first byte that a TLS client sends."""
CAUSES = {
    "NO_SHARED_CIPHER": "no_shared_cipher",
    "UNSUPPORTED_PROTOCOL": "version",
    "VERSION_TOO_LOW": "version",
    "WRONG_SSL_VERSION": "version",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "client_certificate",
    "CERTIFICATE_VERIFY_FAILED": "client_certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "not_trusted",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "not_trusted",
    "SSLV3_ALERT_BAD_CERTIFICATE": "not_trusted",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "expired",
}
"""OpenSSL's reason -> the cause in the metric; any other reason is `broken`. `not_trusted`, `expired`: alerts of
clients that refuse the listener's certificate."""


class _Arrival:
    """A connection whose handshake is not done."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        self.sock = sock
        self.host = host
        self.since_s = 0.0
        """Monotonic time at which its handshake began, in seconds."""
        self.begun = False
        """Whether the socket belongs to a transport."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.listened = False
        self.over = False
        """Whether it has become a session or is closed."""


class _Arrived(Session):
    had_turn = True

    def __init__(self, server: SocketServer, let_go: Callable[[], None]) -> None:
        super().__init__(server)
        self._let_go = let_go

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._let_go()
        super().connection_made(transport)


class TlsListener:
    def __init__(
        self, server: SocketServer, certificates: Certificates, figures: Figures, log: Logger, tasks: Tasks
    ) -> None:
        self._server = server
        self._certificates = certificates
        self._settings = certificates.settings
        self._figures = figures
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._arrivals: dict[_Arrival, None] = {}
        self._under_way: dict[_Arrival, None] = {}
        self._line: deque[_Arrival] = deque()
        self._next: asyncio.Handle | None = None
        self._relief: asyncio.TimerHandle | None = None
        self._closed = False
        self._acceptor = Acceptor(self._arrived, log)
        self.open = self._acceptor.open
        self.sockets = self._acceptor.sockets
        figures("tls_under_way").set_function(lambda: len(self._under_way))

    def close(self) -> None:
        """Stops accepting and ends handshakes under way."""
        self._closed = True
        self._acceptor.close()
        for arrival in list(self._arrivals):
            self._end(arrival)
        for handle in (self._next, self._relief):
            if handle is not None:
                handle.cancel()

    # ---- arrival ------------------------------------------------------------------------------------------
    def _arrived(self, sock: socket.socket, host: str) -> None:
        cause, turn_s = self._server.arriving(host)
        if cause == "too_many_connections" and self._arrivals:
            self._fail(next(iter(self._arrivals)), "crowded_out", "all places are taken, and others have come since")
            cause, turn_s = self._server.arriving(host)
        if cause:
            self._figures("tls_handshakes", cause).inc()
            sock.close()
            return
        wait_s = turn_s + self._settings.handshake_s
        arrival = _Arrival(sock, host)
        self._arrivals[arrival] = None
        arrival.timer = self._loop.call_later(wait_s, self._late, arrival)
        if turn_s:
            self._loop.call_later(turn_s, self._listen_to, arrival)
        else:
            self._listen_to(arrival)

    def _listen_to(self, arrival: _Arrival) -> None:
        if not arrival.over:
            arrival.listened = True
            self._loop.add_reader(arrival.sock, self._peek_first_byte, arrival)

    def _peek_first_byte(self, arrival: _Arrival) -> None:
        """Peeks at a connection's first byte, and leaves it in the socket. No byte: the client has closed."""
        self._loop.remove_reader(arrival.sock)
        arrival.listened = False
        try:
            first = arrival.sock.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self._fail(arrival, "closed")
        elif first[0] != HANDSHAKE:
            self._fail(
                arrival, "not_tls", "the client does not speak TLS, this listener does: look at its security.protocol"
            )
        else:
            self._line.append(arrival)
            self._go_on()

    # ---- handshakes ---------------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Begins the next handshake in the next turn of the loop, if there is a place."""
        if not self._line or self._next is not None or self._closed:
            return
        if len(self._under_way) < self._settings.handshakes:
            self._next = self._loop.call_soon(self._begin)
        elif self._relief is None:
            oldest = next(iter(self._under_way))
            self._relief = self._loop.call_at(max(oldest.since_s + CROWDED_S, self._loop.time()), self._relieve, oldest)

    def _relieve(self, oldest: _Arrival) -> None:
        self._relief = None
        if self._line and not oldest.over and len(self._under_way) >= self._settings.handshakes:
            self._fail(oldest, "crowded_out", "others waited, and this handshake was the oldest one under way")
        self._go_on()

    def _begin(self) -> None:
        self._next = None
        arrival = self._line.popleft()
        if not arrival.over:
            arrival.since_s = self._loop.time()
            self._under_way[arrival] = None
            arrival.task = self._tasks.spawn(self._shake(arrival), "TLS handshake")
        self._go_on()

    async def _shake(self, arrival: _Arrival) -> None:
        arrival.begun = True
        ARRIVING.set(arrival.sock)
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Arrived(self._server, lambda: self._done(arrival)),
                arrival.sock,
                ssl=self._certificates.context,
                ssl_handshake_timeout=self._settings.handshake_s + LOOPS_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ssl.SSLError as exc:
            self._fail(arrival, CAUSES.get(exc.reason or "", "broken"), exc.reason or str(exc))
        except OSError as exc:
            self._fail(arrival, "closed", exc.strerror or str(exc))

    def _done(self, arrival: _Arrival) -> None:
        if not arrival.over:
            self._figures("tls_handshakes", "done").inc()
            arrival.task = None  # it goes on as the session's
            self._forget(arrival)

    def _late(self, arrival: _Arrival) -> None:
        self._fail(arrival, "timeout", "limited by tls.handshake_timeout_ms")

    def _fail(self, arrival: _Arrival, cause: str, detail: str = "") -> None:
        if arrival.over:
            return
        self._figures("tls_handshakes", cause).inc()
        if detail:
            self._server.door.log_seldom("TLS handshake failed", arrival.host, cause, detail)
        self._end(arrival)

    def _end(self, arrival: _Arrival) -> None:
        if arrival.listened:
            self._loop.remove_reader(arrival.sock)
        self._forget(arrival)
        if arrival.task is not None and arrival.task is not asyncio.current_task(self._loop):
            arrival.task.cancel()  # the transport closes with it
        if not arrival.begun:
            arrival.sock.close()

    def _forget(self, arrival: _Arrival) -> None:
        arrival.over = True
        if arrival.timer is not None:
            arrival.timer.cancel()
        del self._arrivals[arrival]
        self._under_way.pop(arrival, None)
        self._server.door.let_go(arrival.host)
        self._go_on()
