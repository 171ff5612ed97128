"""One client connection on real sockets: moves bytes between client, broker and `ClientConnection`, with
back-pressure both ways. It decides nothing about requests.

A client is read no further (`flow`) while one of these is so, and each time it begins is counted:
    upstream   the broker does not take what the client sends, or is not connected yet
    unread     the client does not take what it is answered
    in_flight  as many requests are under way as may be
    held       what came behind a request that is being answered, or behind its turn, has come to `held_bytes`
    memory     it has more to come or to wait than its own part, and all sessions together have as much as they may
    rate       it has just connected, and more have than may in a second: it waits for its turn
    large      its large request or answer waits for those of others: it is read, so that its end is noticed
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from sidecar.api.call import Client
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.front.broker_watch import BrokerWatch
from sidecar.front.large import LARGE_BYTES, LargeRequests
from sidecar.front.memory import Memory
from sidecar.front.outbox import Outbox
from sidecar.front.reads import Reader
from sidecar.front.steady import Steady, steady_cache
from sidecar.link.ports import Logger
from sidecar.proxy.actions import Action, Answered, Close, Got, ToClient, ToUpstream
from sidecar.proxy.connection import ClientConnection
from sidecar.proxy.internal import Internal
from sidecar.wire.frames import Limits

PAUSES = ("upstream", "unread", "in_flight", "held", "memory", "rate", "large")
CONNECT_TIMEOUT_S = 10.0
SILENT = "broker_silent"
"""Why a connection is closed that needs a silent broker."""
Then = Callable[[bytes | None], None]
"""Called with the broker's response frame, or with None if it will never come."""


class SessionFront(Protocol):
    """The front, as a session sees it."""

    @property
    def broker(self) -> tuple[str, int]: ...
    @property
    def upstream_tls(self) -> Callable[[], ssl.SSLContext | None]: ...
    @property
    def upstream_host(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def internal(self) -> Internal: ...
    @property
    def header_timeout_s(self) -> float: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def large(self) -> LargeRequests: ...
    @property
    def pauses(self) -> dict[str, int]: ...
    @property
    def log(self) -> Logger: ...
    @property
    def watch(self) -> BrokerWatch: ...

    def opened(self, session: Session) -> str:
        """Why this connection is one too many; "": it is not."""

    def gone(self, session: Session, cause: str) -> None: ...

    def refused(self, session: Session, close: Close) -> None: ...

    def broker_refused(self, session: Session, detail: str) -> None: ...

    def dispatch(self, session: Session, got: Got) -> None: ...


async def connect(front: SessionFront, factory: Callable[[], asyncio.BaseProtocol]) -> None:
    """To the broker, as every client's connection does. Raises OSError."""
    host, port = front.broker
    tls = front.upstream_tls()
    name = (front.upstream_host or host) if tls is not None else None
    await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls, server_hostname=name)


class _Upstream(Reader):
    def __init__(self, session: Session) -> None:
        super().__init__(session.front.memory.reads)
        self.session = session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.session.upstream_ready(transport)

    def data_received(self, data: bytes) -> None:
        s = self.session
        s.quiet = 0
        s.heard = s.detector.heard = True
        s.run(s.conn.from_upstream(data))
        s.flow()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.session.upstream_lost(exc)

    def pause_writing(self) -> None:
        self.session.to_broker.paused()
        self.session.flow()

    def resume_writing(self) -> None:
        self.session.to_broker.resumed()
        self.session.flow()


class Session(Reader):
    def __init__(self, front: SessionFront) -> None:
        super().__init__(front.memory.reads)
        self.front = front
        self.conn = ClientConnection(front.limits, front.internal)
        self.number = 0
        """The front counts them."""
        self.host = ""
        self.client: asyncio.Transport | None = None
        self.upstream: asyncio.Transport | None = None
        self.facts = Client()
        self.steady: BoundedCache[bytes, Steady] = steady_cache()
        """By the bytes of the request behind its correlation id."""
        self.to_client, self.to_broker = Outbox(), Outbox()
        self._kept_bytes = 0
        """Of both, and of replies that wait for their turn, as it was counted last."""
        self.quiet = 0
        """How often the front has looked and nothing had moved since."""
        self.waits_for_memory = False
        self.waits_for_turn = False
        """Nothing of it is read yet: others have connected before it."""
        self.had_turn = False
        """It has waited for that already, before its handshake."""
        self.reserved_bytes = 0
        self.has_place = False
        self.waits_for_place = 0
        """Bytes of a large request that has none yet (large.py)."""
        self.heard = False
        """The broker has answered on this connection."""
        self.detector = front.watch.detector
        self.link_looks = self.link_requests = 0
        """How often links.py has looked since the link to the broker was used; what the client had asked by then."""
        self._connecting: asyncio.Task[None] | None = None
        self._asks: dict[int, Then] = {}
        self._paused = ""
        """Why the client is not read."""
        self._upstream_paused = False
        self._cause = ""
        self._partial: asyncio.TimerHandle | None = None
        self._partial_of = 0
        self._later = False
        self._in_flight_max = front.limits.in_flight
        self._left_unread = 0
        self._running = False
        self._todo: deque[Action] = deque()
        self._out: list[bytes] = []

    # ---- the client's socket ------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.client = transport
        self.to_client.open(transport)
        peer = transport.get_extra_info("peername")
        self.host = self.facts.host = str(peer[0]) if peer else ""
        cause = self.front.opened(self)
        if cause:
            self.close(cause)
        elif self.waits_for_turn:
            self.conn.stopped = True
            self._steer(transport)
            asyncio.get_running_loop().call_soon(self._stay_paused)

    def _stay_paused(self) -> None:
        """uvloop begins to read after `connection_made`, whatever that has said. What comes in between is held."""
        if self._paused and self.client is not None and not self.client.is_closing():
            self.client.pause_reading()

    def let_in(self) -> None:
        """Its turn has come."""
        self.waits_for_turn = self.conn.stopped = False
        self._soon()
        self.flow()

    def data_received(self, data: bytes) -> None:
        self.quiet = 0
        self.run(self.conn.from_client(data))
        self.flow()

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for is still answered. TLS ends with its client's half, here as at a
        broker."""
        self.facts.left = True
        if self.waits_for_place or self.client is None or not self.client.can_write_eof():
            return False
        self._pass_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cause = self._cause or ("client_reset" if exc else "client_closed")
        self.front.gone(self, self._cause)
        self.conn.closed = True
        self.front.large.ended(self)
        self.front.memory.unread.forget(self)
        if self._partial is not None:
            self._partial.cancel()
        self.front.memory.give_back(self)
        self.facts.forget()
        self.steady.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.upstream is not None:
            self.upstream.abort() if self.cut_off else self.to_broker.end()
        self._end_asks()

    def pause_writing(self) -> None:
        self.to_client.paused()
        self.conn.stopped = True
        self.flow()

    def resume_writing(self) -> None:
        if self.to_client.resumed():
            self.conn.stopped = self.to_client.reply = False
            self._soon()
        self.flow()

    def look(self) -> str:
        """Called by the front now and then. Returns why the connection would have to be closed if it is `quiet` for
        too long; "": it may be."""
        left = self.to_client.left_bytes
        self.quiet = 0 if left < self._left_unread else self.quiet + 1
        self._left_unread = left
        return "not_read" if left else "idle" if self.conn.idle else ""

    # ---- the broker's socket ------------------------------------------------------------------------------
    @property
    def owed(self) -> bool:
        """The broker owes an answer, or takes no more."""
        connects = self.upstream is None and self._connecting is not None
        return not self.conn.closed and (self.conn.owed or self.to_broker.full or connects)

    @property
    def anonymous(self) -> bool:
        """The broker has let this client in, which has not authenticated."""
        return (self.conn.let_in or self.facts.let_in) and not self.conn.authenticates and not self.conn.closed

    @property
    def cut_off(self) -> bool:
        """The broker is silent to this connection."""
        return self.detector.silent and (self.detector.silent_to_all or not self.heard)

    def fall_silent(self) -> None:
        """What the sidecar has asked will have no answer in time: its handlers go on without. What was passed on cannot
        be answered by anybody else."""
        if self.to_broker.full or not self.conn.abandon():
            self.close(SILENT)
            return
        self._end_asks()

    def _end_asks(self) -> None:
        """No answer to what the sidecar has asked will come."""
        asks, self._asks = self._asks, {}
        for then in asks.values():
            then(None)

    def _to_upstream(self, data: bytes) -> None:
        watch = self.front.watch
        if not watch.watching:
            watch.begin()
        if self.detector.silent and self.cut_off:
            self.close(SILENT)
            return
        self.link_looks, self.link_requests = 0, self.conn.requests
        self.to_broker.write(data)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            watch.connects(self)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await connect(self.front, lambda: _Upstream(self))
        except ssl.SSLError as exc:
            self.front.broker_refused(self, str(exc))
            self.close("broker_unreachable", str(exc))
        except (OSError, TimeoutError) as exc:
            self.close("broker_unreachable", str(exc) or "timed out")

    def upstream_ready(self, transport: asyncio.Transport) -> None:
        if self.client is None or self.client.is_closing():
            transport.close()
            return
        self.upstream = transport
        self.to_broker.open(transport)
        self.flow()

    def upstream_lost(self, exc: Exception | None) -> None:
        self.close("client_closed" if self.facts.left else "broker_closed", str(exc or ""))

    def _pass_eof(self) -> None:
        if self.upstream is not None:
            if self.conn.local_pending or self.conn.waiting or self.to_broker.waiting:
                return  # a reply under way may still need the broker; flow() comes back here
            if self.upstream.can_write_eof():
                self.upstream.write_eof()
            elif self.conn.idle:
                self.close("client_closed")
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
                    size, large = len(a.frame), self.front.large
                    if size <= LARGE_BYTES or self.conn.closed or large.begins(self, size, partial(self.run, [a])):
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
            self.to_client.write(out[0] if len(out) == 1 else b"".join(out))
            self.to_client.reply = self.to_client.full and (self.to_client.reply or self.conn.order.replied)
            self.conn.order.replied = False

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
        if self.has_place:
            self.front.large.ended(self)
        self.run(self.conn.answer(token, frame))
        if not self._running:
            self.flow()  # otherwise whoever runs looks at it in the end

    def forward(self, got: Got, frame: bytes | None = None) -> None:
        if self.has_place:
            self.front.large.ended(self)
        self.run(self.conn.forward(got.token, frame if frame is not None else got.frame))
        if not self._running:
            self.flow()

    def ask(self, token: int, frame: bytes, then: Then) -> None:
        """Our own request on the client's connection to the broker, while the request `token` is being handled. There
        is no answer if the connection ends, or while the broker is silent."""
        if self.conn.closed or self.cut_off:
            then(None)
            return
        self._asks[token] = then
        self.run(self.conn.ask(token, frame))
        if self._upstream_paused:
            self.flow()

    def close(self, cause: str, detail: str = "") -> None:
        if not self._cause:
            self._cause = cause
            if detail and cause != "client_closed":
                self.front.log.debug("connection closed", client=self.host, cause=cause, detail=detail)
        self.conn.closed = True
        self.front.large.ended(self)
        self._flush()
        self.to_client.end()

    def abort(self, cause: str) -> None:
        """Close without waiting for what is still to be written: the client does not read it."""
        self.to_client.drop()
        self.close(cause)
        if self.client is not None:
            self.client.abort()

    # ---- flow control -------------------------------------------------------------------------------------
    def flow(self) -> None:
        """Read a side only while the other one takes what it sends. The end of the client's half is passed on here."""
        if self.facts.left and self.client is not None and not self.client.is_closing():
            self._pass_eof()
        if self.client is None:
            return
        conn, full = self.conn, self.to_client.full
        kept = self.to_client.kept_bytes + self.to_broker.kept_bytes + conn.order.reply_bytes
        if kept != self._kept_bytes and not conn.closed:
            self._kept_bytes = kept
            self.front.memory.unread.count(self, kept, self.to_client.reply or conn.order.reply_bytes > 0)
        if (
            conn.held_bytes
            or conn.in_flight >= self._in_flight_max
            or full
            or self.to_broker.full
            or self._paused
            or self.waits_for_place
            or self._partial is not None
            or self.reserved_bytes
            or (self._connecting is not None and self.upstream is None)
        ):  # nearly always nothing of this is so
            self._steer(self.client)
        pause_upstream = full and not conn.asks
        if pause_upstream == self._upstream_paused or self.client.is_closing():
            return
        if self.upstream is not None and not self.upstream.is_closing():
            self._upstream_paused = pause_upstream
            self.upstream.pause_reading() if pause_upstream else self.upstream.resume_reading()

    def _steer(self, client: asyncio.Transport) -> None:
        """Whether the client is read, how long the rest of a request may take, and when the next turn is."""
        if self.conn.more:
            self._soon()
        self._watch_partial()
        why = self._why_pause()
        if why != self._paused and not client.is_closing():
            if why and not self._paused:
                client.pause_reading()
            elif not why:
                client.resume_reading()
            if why:
                self.front.pauses[why] += 1
            self._paused = why

    def _why_pause(self) -> str:
        """Why the client is read no further; "": it is."""
        conn = self.conn
        if self.to_broker.full or (self.upstream is None and self._connecting is not None):
            return "upstream"
        if self.to_client.full:
            return "unread"
        if conn.in_flight >= self._in_flight_max:
            return "in_flight"
        if conn.waiting and conn.held_bytes > self.front.held_bytes:
            return "held"
        if self.waits_for_turn:
            return "rate"
        return "memory" if self.waits_for_memory else ""

    def _soon(self) -> None:
        """The next turn of what the client has sent, behind whatever else there is to do."""
        if not self._later and not self.conn.closed:
            self._later = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._later = False
        self.run(self.conn.go_on())
        self.flow()

    def _watch_partial(self) -> None:
        """There must be room for what waits and for the rest of a request, and that must come in time, unless we do not
        read it."""
        conn, front = self.conn, self.front
        if conn.closed:
            return
        needed = self.waits_for_place + (conn.partial_bytes if conn.partial else conn.held_bytes)
        if needed > front.memory.own_bytes:
            front.memory.take(self, needed, keep=not conn.partial)
        elif self.reserved_bytes or self.waits_for_memory:
            front.memory.give_back(self)
        waits = conn.partial and not self._why_pause()
        if self._partial is not None and not (waits and conn.requests == self._partial_of):
            self._partial.cancel()
            self._partial = None
        if waits and self._partial is None:
            self._partial_of = conn.requests
            loop = asyncio.get_running_loop()
            self._partial = loop.call_later(front.header_timeout_s, self.close, "request_timeout")
