"""One client connection on real sockets: moves bytes between client, broker (upstream.py) and `ClientConnection`. It
decides nothing about requests; flow_control.py decides when a side is read."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Protocol, cast

from sidecar.api.call import Client
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.front.bind import peer_host
from sidecar.front.budget import SHORT_TURN
from sidecar.front.flow_control import FlowControl, FlowServer
from sidecar.front.large import LARGE_BYTES
from sidecar.front.outbox import Outbox
from sidecar.front.reads import Reader
from sidecar.front.steady import Steady, steady_cache
from sidecar.front.upstream import Upstream, UpstreamServer
from sidecar.link.ports import Logger
from sidecar.proxy.actions import Action, Answered, Close, Got, ToClient, ToUpstream
from sidecar.proxy.connection import ClientConnection
from sidecar.proxy.internal import Internal
from sidecar.wire.apis import ApiSpec


class SessionServer(UpstreamServer, FlowServer, Protocol):
    """The socket server, as a session sees it."""

    internal: Internal

    @property
    def log(self) -> Logger: ...

    def opened(self, session: Session) -> str:
        """Returns why this connection is one too many; "": it is not."""

    def gone(self, session: Session, cause: str) -> None: ...

    def refused(self, session: Session, close: Close) -> None: ...

    def dispatch(self, session: Session, got: Got) -> None: ...


class Session(Reader):
    had_turn = False
    """Whether it has waited for its turn before its handshake."""

    def __init__(self, server: SessionServer) -> None:
        super().__init__(server.memory.reads)
        self.conn = ClientConnection(server.settings.limits, server.internal)
        self.conn.served = server.broker.served
        self.to_client = Outbox()
        self.facts = Client()
        self.steady: BoundedCache[bytes, Steady] = steady_cache()
        """Answers that may be given again, by the bytes of the request after its correlation id."""
        self.quiet = 0
        """Number of the door's checks since bytes last moved on this connection."""
        self.upstream = Upstream(self, server)
        self.flow = FlowControl(self, server)
        self._server = server
        self._cause = ""
        self.turn_due = False
        self._left_unread = 0
        self._running = False
        self._todo: deque[Action] = deque()
        self._out: list[bytes] = []

    # ---- the client's socket ------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.transport = transport
        self.to_client.open(transport)
        self.facts.host = peer_host(transport.get_extra_info("peername"))
        cause = self._server.opened(self)
        if cause:
            self.close(cause)
        else:
            self.flow.begin(transport)

    def data_received(self, data: bytes) -> None:
        self.quiet = 0
        self.run(self.conn.from_client(data, SHORT_TURN if self._budget.exhausted else 0))
        self.flow.adjust()

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for is still answered. TLS ends with its client's half, here as at a
        broker."""
        self.facts.left = True
        if self.flow.waits_for_place or self.transport is None or not self.transport.can_write_eof():
            return False
        self.upstream.pass_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cause = self._cause or ("client_reset" if exc else "client_closed")
        self._server.gone(self, self._cause)
        self.conn.closed = True
        self.flow.end()
        self.facts.forget()
        self.steady.clear()
        self.upstream.end()
        self.transport = None
        self.to_client.forget()

    def pause_writing(self) -> None:
        self.flow.client_takes(False)

    def resume_writing(self) -> None:
        self.flow.client_takes(True)

    @property
    def closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def look(self) -> str:
        """Called by the door now and then. Returns the cause for closing the connection if it stays `quiet` for too
        long; "": there is none."""
        left = self.to_client.left_bytes
        self.quiet = 0 if left < self._left_unread else self.quiet + 1
        self._left_unread = left
        return "not_read" if left else "idle" if self.conn.idle else ""

    @property
    def anonymous(self) -> bool:
        """Whether the broker has let this client in without authentication."""
        return (self.conn.let_in or self.facts.let_in) and not self.conn.authenticates and not self.conn.closed

    # ---- actions ------------------------------------------------------------------------------------------
    def run(self, actions: list[Action]) -> None:
        """Carries out actions in their order. An answer lets the client's next request be seen, which is done after
        it; once the time of this iteration is over, in a later one: the coordinator may have answered hundreds of
        clients at once."""
        todo = self._todo
        todo.extend(actions)
        if self._running:
            return  # called from within: the outer call goes on
        self._running = True
        budget, handled = self._budget, 0
        try:
            while todo:
                a = todo.popleft()
                if type(a) is ToClient:
                    self._out.append(a.data)
                elif type(a) is Got:
                    size = len(a.frame)
                    if self.conn.closed:
                        continue
                    if handled > 0:
                        budget.count_work()
                    handled += 1
                    if budget.exhausted:
                        self.conn.order.left = 0
                    if size <= LARGE_BYTES or self.flow.begin_large(size, partial(self.run, [a])):
                        self._server.dispatch(self, a)
                else:
                    self._do(a)
        finally:
            self._running = False
            self._flush()

    def _flush(self) -> None:
        """Writes replies; those to pipelined requests leave together."""
        out = self._out
        if out and self.transport is not None:
            self._out = []
            to_client, order = self.to_client, self.conn.order
            to_client.write(out[0] if len(out) == 1 else b"".join(out))
            to_client.reply = to_client.full and (to_client.reply or order.replied)
            order.replied = False

    def _do(self, a: Action) -> None:
        if isinstance(a, ToUpstream):
            self.upstream.send(a.data)
        elif isinstance(a, Answered):
            self.upstream.answered(a.token, a.frame)
        elif isinstance(a, Close):
            self._server.refused(self, a)
            self.close(a.cause, a.detail)

    def reply(self, token: int, frame: bytes) -> None:
        """Answers a request. An empty `frame`: no response is due."""
        if self.flow.place is not None:
            self.flow.end_large()
        self.run(self.conn.answer(token, frame))
        if not self._running:
            self.flow.adjust()  # otherwise `run`'s caller adjusts in the end

    def forward(self, got: Got, frame: bytes | None = None) -> None:
        if self.flow.place is not None:
            self.flow.end_large()
        self.run(self.conn.forward(got.token, frame if frame is not None else got.frame))
        if not self._running:
            self.flow.adjust()

    def shown(self, served: dict[int, ApiSpec]) -> None:
        """Takes in the APIs to look into: the broker has shown its versions. They count for later connections, too, as
        some clients ask on their first one only."""
        self.conn.served = self._server.broker.served = served

    def turn_soon(self) -> None:
        """Schedules the next turn of what the client has sent, behind all other work."""
        if not self.turn_due and not self.conn.closed:
            self.turn_due = True
            self._budget.defer(self._next_turn)

    def _next_turn(self) -> None:
        self.turn_due = False
        self.run(self.conn.go_on())
        self.flow.adjust()

    # ---- ending -------------------------------------------------------------------------------------------
    def close(self, cause: str, detail: str = "") -> None:
        if not self._cause:
            self._cause = cause
            if detail and cause != "client_closed":
                self._server.log.debug("connection closed", client=self.facts.host, cause=cause, detail=detail)
        self.conn.closed = True
        self.flow.end_large()
        self._flush()
        self.to_client.end()

    def abort(self, cause: str) -> None:
        """Closes without sending what is still to be written: the client does not read it."""
        self.to_client.drop()
        self.close(cause)
        if self.transport is not None:
            self.transport.abort()
