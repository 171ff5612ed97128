"""A client's own connection to the broker: made when something is first sent there, and gone with the client's.

It carries what passes, and the sidecar's own requests (`ask`) on behalf of this client. It decides nothing about them.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Callable
from typing import Protocol, cast

from sidecar.api.call import Client
from sidecar.front.broker_watch import SILENT, BrokerWatch
from sidecar.front.memory import Memory
from sidecar.front.outbox import Outbox
from sidecar.front.reads import Reader
from sidecar.front.settings import FrontSettings
from sidecar.kafka.cluster import Address
from sidecar.proxy.actions import Action
from sidecar.proxy.connection import ClientConnection
from sidecar.wire.apis import PASSING

CONNECT_TIMEOUT_S = 10.0
Then = Callable[[bytes | None], None]
"""Called with the broker's response frame, or with None if it will never come."""


class Broker:
    """The broker behind this sidecar. `tls()`: for a connection to it, whose certificate is to name `host` ("": the
    host of `address`)."""

    def __init__(self, address: Address, tls: Callable[[], ssl.SSLContext | None], host: str = "") -> None:
        self.address = address
        self._tls, self._host = tls, host
        self.served = PASSING
        """APIs that new connections look into, by the broker's versions as a client last saw them."""

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connects as every client's connection does. Raises OSError."""
        host, port = self.address
        tls = self._tls()
        name = (self._host or host) if tls is not None else None
        await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls, server_hostname=name)


class UpstreamServer(Protocol):
    """The socket server, as a connection to the broker sees it."""

    settings: FrontSettings
    memory: Memory
    broker: Broker
    watch: BrokerWatch

    def broker_refused(self, host: str, detail: str) -> None: ...


class Flow(Protocol):
    def adjust(self) -> None: ...


class Downstream(Protocol):
    """A client's connection, as its parts see it: a session."""

    conn: ClientConnection
    facts: Client
    transport: asyncio.Transport | None
    to_client: Outbox
    upstream: Upstream
    quiet: int

    @property
    def flow(self) -> Flow: ...
    @property
    def closing(self) -> bool: ...

    def run(self, actions: list[Action]) -> None: ...

    def turn_soon(self) -> None: ...

    def stop_reading(self, stop: bool) -> None: ...

    def close(self, cause: str, detail: str = "") -> None: ...

    def abort(self, cause: str) -> None: ...


class Upstream(Reader):
    def __init__(self, session: Downstream, server: UpstreamServer) -> None:
        super().__init__(server.memory.reads)
        self._session, self._server = session, server
        self.connect = server.broker.connect
        self.connecting = False
        """Whether bytes wait for a connection that is being made."""
        self.outbox = Outbox()
        self.has_answered = False
        """Whether the broker has answered on this connection."""
        self._over = False
        """Whether the client's connection is gone."""
        self.looks = self.requests = 0
        """Checks by links.py since this connection was used; number of the client's requests by then."""
        self._detector = server.watch.detector
        self._attempt: asyncio.Task[None] | None = None
        self.asks: dict[int, Then] = {}
        """Continuations that wait for the broker's response, by the token of the client's request."""

    # ---- the socket ---------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        if self._over or self._session.closing:
            transport.close()
            return
        self.transport, self.connecting = transport, False
        self.outbox.open(transport)
        self._session.flow.adjust()

    def data_received(self, data: bytes) -> None:
        s = self._session
        s.quiet = 0
        self.has_answered = self._detector.received = True
        s.run(s.conn.from_upstream(data))
        s.flow.adjust()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return  # it came too late
        self._session.close("client_closed" if self._session.facts.left else "broker_closed", str(exc or ""))
        self.transport = None
        self.outbox.forget()
        if self._over:
            self._let_go()

    def pause_writing(self) -> None:
        self.outbox.paused()
        self._session.flow.adjust()

    def resume_writing(self) -> None:
        self.outbox.resumed()
        self._session.flow.adjust()

    # ---- what the client's side sends ---------------------------------------------------------------------
    def send(self, data: bytes) -> None:
        watch = self._server.watch
        if not watch.watching:
            watch.begin()
        if self._detector.silent and self.cut_off:
            self._session.close(SILENT)
            return
        self.looks, self.requests = 0, self._session.conn.requests
        self.outbox.write(data)
        if self.transport is None and not self.connecting:
            self.connecting = True
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
            watch.connects(self)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self.connect(lambda: self)
        except ssl.SSLError as exc:
            self._server.broker_refused(self._session.facts.host, str(exc))
            self._session.close("broker_unreachable", str(exc))
        except (OSError, TimeoutError) as exc:
            self._session.close("broker_unreachable", str(exc) or "timed out")

    def pass_eof(self) -> None:
        """Passes on that the client sends no more."""
        conn = self._session.conn
        if self.transport is not None:
            if conn.local_pending or conn.waiting or self.outbox.waiting:
                return  # a reply under way may still need the broker; `FlowControl.adjust` comes back here
            if self.transport.can_write_eof():
                self.transport.write_eof()
            elif conn.idle:
                self._session.close("client_closed")
        elif not self.connecting and conn.idle:
            self._session.close("client_closed")

    def end(self) -> None:
        """Closes the connection to the broker after the client's."""
        self._over = True
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None  # it may end with an error that holds this connection
        if self.transport is not None:
            self.transport.abort() if self.cut_off else self.outbox.end()
        else:
            self._let_go()
        self._end_asks()

    def _let_go(self) -> None:
        """Breaks the cycle of session and upstream once both connections are gone. The collector would find them after
        days (process/shared.py), with all that they keep."""
        self._session = weakref.proxy(self._session)

    # ---- the sidecar's own requests -----------------------------------------------------------------------
    def ask(self, token: int, frame: bytes, then: Then) -> None:
        """Sends a request of the sidecar's own while the client's request `token` is being handled. `then` gets None if
        the connection ends, or while the broker is silent."""
        if self._session.conn.closed or self.cut_off:
            then(None)
            return
        self.asks[token] = then
        self._session.run(self._session.conn.ask(token, frame))
        if self.stopped:
            self._session.flow.adjust()

    def answered(self, token: int, frame: bytes) -> None:
        then = self.asks.pop(token, None)
        if then is not None:
            then(frame)

    def _end_asks(self) -> None:
        """Ends the sidecar's own requests without an answer."""
        asks, self.asks = self.asks, {}
        for then in asks.values():
            then(None)

    # ---- a silent broker (broker_watch.py) ----------------------------------------------------------------
    @property
    def owed(self) -> bool:
        """Whether the broker owes an answer, or takes no more."""
        if self._over:
            return False
        conn = self._session.conn
        return not conn.closed and (conn.owed or self.outbox.full or self.connecting)

    @property
    def cut_off(self) -> bool:
        """Whether the broker is silent to this connection."""
        return self._detector.silent and (self._detector.silent_to_all or not self.has_answered)

    def fall_silent(self) -> None:
        """Resumes the handlers that wait for the broker, without its answers. Closes the connection if a request was
        passed on: only the broker can answer that."""
        if self.outbox.full or not self._session.conn.abandon():
            self._session.close(SILENT)
            return
        self._end_asks()
