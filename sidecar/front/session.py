"""One client connection on real sockets: moves bytes between client, broker and `ClientConnection`, with
back-pressure both ways. It decides nothing about requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from sidecar.api.call import Client
from sidecar.front.steady import Steady
from sidecar.link.ports import Logger
from sidecar.proxy.connection import Action, Answered, ClientConnection, Close, Got, ToClient, ToUpstream
from sidecar.wire.frames import Limits

WRITE_HIGH_BYTES = 1 << 20
HELD_BYTES = 65_536
"""Of later requests, kept while one is being answered; then the client is read no further."""
CONNECT_TIMEOUT_S = 10.0
Then = Callable[[bytes | None], None]
"""Called with the broker's response frame, or with None if it will never come."""


class Desk(Protocol):
    """The front, as a session sees it."""

    @property
    def broker(self) -> tuple[str, int]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def header_timeout_s(self) -> float: ...
    @property
    def in_flight_max(self) -> int: ...
    @property
    def log(self) -> Logger: ...

    def opened(self, session: Session) -> bool:
        """False: there are too many connections already."""

    def gone(self, session: Session, cause: str) -> None: ...

    def refused(self, session: Session, close: Close) -> None: ...

    def dispatch(self, session: Session, got: Got) -> None: ...


class _Upstream(asyncio.Protocol):
    def __init__(self, session: Session) -> None:
        self.session = session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.session.upstream_ready(transport)

    def data_received(self, data: bytes) -> None:
        s = self.session
        s.run(s.conn.from_upstream(data))
        s.flow()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.session.upstream_lost(exc)

    def pause_writing(self) -> None:
        self.session.upstream_full = True
        self.session.flow()

    def resume_writing(self) -> None:
        self.session.upstream_full = False
        self.session.flow()


class Session(asyncio.Protocol):
    def __init__(self, front: Desk) -> None:
        self.front = front
        self.conn = ClientConnection(front.limits)
        self.number = 0
        """The front counts them."""
        self.host = ""
        self.client: asyncio.Transport | None = None
        self.upstream: asyncio.Transport | None = None
        self.facts = Client()
        self.steady: dict[bytes, Steady] = {}
        """By the bytes of the request behind its correlation id."""
        self.client_full = False
        self.upstream_full = False
        self._connecting: asyncio.Task[None] | None = None
        self._backlog: list[bytes] = []
        self._asks: dict[int, Then] = {}
        self._client_paused = False
        self._upstream_paused = False
        self._client_eof = False
        self._cause = ""
        self._partial: asyncio.TimerHandle | None = None
        self._running = False
        self._todo: deque[Action] = deque()
        self._out: list[bytes] = []

    # ---- the client's socket ------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.client = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.host = self.facts.host = str(peer[0]) if peer else ""
        if not self.front.opened(self):
            self.close("too_many_connections")

    def data_received(self, data: bytes) -> None:
        self.run(self.conn.from_client(data))
        self.flow()
        waits = self.conn.partial
        if waits and self._partial is None:
            loop = asyncio.get_running_loop()
            self._partial = loop.call_later(self.front.header_timeout_s, self.close, "request_timeout")
        elif not waits and self._partial is not None:
            self._partial.cancel()
            self._partial = None

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for is still answered."""
        self._client_eof = True
        self._pass_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cause = self._cause or ("client_reset" if exc else "client_closed")
        self.front.gone(self, self._cause)
        self.conn.closed = True
        if self._partial is not None:
            self._partial.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.upstream is not None:
            self.upstream.close()
        asks, self._asks = self._asks, {}
        for then in asks.values():
            then(None)

    def pause_writing(self) -> None:
        self.client_full = True
        self.flow()

    def resume_writing(self) -> None:
        self.client_full = False
        self.flow()

    # ---- the broker's socket ------------------------------------------------------------------------------
    def _to_upstream(self, data: bytes) -> None:
        if self.upstream is not None:
            self.upstream.write(data)
            return
        self._backlog.append(data)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        host, port = self.front.broker
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: _Upstream(self), host, port)
        except (OSError, TimeoutError) as exc:
            self.close("broker_unreachable", str(exc) or "timed out")

    def upstream_ready(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self.client is None or self.client.is_closing():
            transport.close()
            return
        self.upstream = transport
        for data in self._backlog:
            transport.write(data)
        self._backlog.clear()
        self.flow()

    def upstream_lost(self, exc: Exception | None) -> None:
        self.close("client_closed" if self._client_eof else "broker_closed", str(exc or ""))

    def _pass_eof(self) -> None:
        if self.upstream is not None:
            if self.conn.local_pending:
                return  # a reply under way may still need the broker; flow() comes back here
            if self.upstream.can_write_eof():
                self.upstream.write_eof()
        elif self._connecting is None and self.conn.idle:
            self.close("client_closed")

    # ---- actions ------------------------------------------------------------------------------------------
    def run(self, actions: list[Action]) -> None:
        """Do these in their order. An answer lets the client's next request be seen, which is done after it."""
        todo = self._todo
        todo.extend(actions)
        if self._running:
            return  # called from within: the outer call goes on
        self._running = True
        try:
            while todo:
                a = todo.popleft()
                if type(a) is ToClient:
                    self._out.append(a.data)
                elif type(a) is Got:
                    self.front.dispatch(self, a)
                else:
                    self._do(a)
        finally:
            self._running = False
            self._flush()

    def _flush(self) -> None:
        """Answers to pipelined requests leave together."""
        out = self._out
        if out and self.client is not None:
            self._out = []
            if len(out) == 1:
                self.client.write(out[0])
            else:
                self.client.writelines(out)

    def _do(self, a: Action) -> None:
        if isinstance(a, ToUpstream):
            self._to_upstream(a.data)
        elif isinstance(a, Answered):
            then = self._asks.pop(a.token, None)
            if then is not None:
                then(a.frame)
        elif isinstance(a, Close):
            self.front.refused(self, a)
            self.close(a.cause, a.detail)

    def reply(self, token: int, frame: bytes) -> None:
        """`frame` may be empty: no response is due."""
        self.run(self.conn.answer(token, frame))
        if not self._running:
            self.flow()  # otherwise whoever runs looks at it in the end

    def forward(self, got: Got, frame: bytes | None = None) -> None:
        self.run(self.conn.forward(got.token, frame if frame is not None else got.frame))
        if not self._running:
            self.flow()

    def ask(self, token: int, frame: bytes, then: Then) -> None:
        """Our own request on the client's connection to the broker, while the request `token` is being handled."""
        if self.conn.closed:
            then(None)
            return
        self._asks[token] = then
        self.run(self.conn.ask(token, frame))

    def close(self, cause: str, detail: str = "") -> None:
        if not self._cause:
            self._cause = cause
            if detail and cause != "client_closed":
                self.front.log.debug("connection closed", client=self.host, cause=cause, detail=detail)
        self.conn.closed = True
        self._flush()
        if self.client is not None and not self.client.is_closing():
            self.client.close()

    # ---- flow control -------------------------------------------------------------------------------------
    def flow(self) -> None:
        """Read a side only while the other one takes what it sends. The end of the client's half is passed on here."""
        if self._client_eof and self.client is not None and not self.client.is_closing():
            self._pass_eof()
        if self.client is None:
            return
        waiting_connect = self.upstream is None and self._connecting is not None
        held = self.conn.local_pending and self.conn.held_bytes > HELD_BYTES
        pause_client = self.upstream_full or waiting_connect or held or self.conn.in_flight >= self.front.in_flight_max
        if pause_client != self._client_paused and not self.client.is_closing():
            self._client_paused = pause_client
            self.client.pause_reading() if pause_client else self.client.resume_reading()
        pause_upstream = self.client_full
        if pause_upstream == self._upstream_paused or self.client.is_closing():
            return
        if self.upstream is not None and not self.upstream.is_closing():
            self._upstream_paused = pause_upstream
            self.upstream.pause_reading() if pause_upstream else self.upstream.resume_reading()
