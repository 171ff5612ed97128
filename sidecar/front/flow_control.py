"""Reads each side of a client's connection only while there is room for what it sends: back-pressure both ways.

A client is read no further for one of these reasons, and each pause is counted:
    upstream   the broker does not take the client's bytes, or is not connected yet
    unread     the client does not take its answers
    in_flight  the limit of requests under way is reached
    held       `held_bytes` have come behind a request that is being answered, or behind its turn
    memory     it needs more than its own part, and all sessions together are at their limit
    rate       it has just connected, and more have than may in a second: it waits for its turn
    large      its large request or answer waits for those of others: it is read, so that its end is noticed
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Protocol

from sidecar.front.large import LargeRequests, Place
from sidecar.front.memory import Memory
from sidecar.front.settings import FrontSettings
from sidecar.front.upstream import Downstream

PAUSES = ("upstream", "unread", "in_flight", "held", "memory", "rate", "large")


class FlowServer(Protocol):
    """The socket server, as the flow of one connection sees it."""

    settings: FrontSettings
    memory: Memory
    large: LargeRequests
    pauses: dict[str, int]


class FlowControl:
    def __init__(self, session: Downstream, server: FlowServer) -> None:
        self._session, self._server = session, server
        self._conn, self._upstream = session.conn, session.upstream
        self._kept_bytes = 0
        """Bytes that neither side has taken, and replies that wait for their turn, at the last count."""
        self.waits_for_turn = False
        """Whether the client is not read yet because others have connected before it."""
        self.waits_for_memory = False
        self.reserved_bytes = 0
        self.place: Place | None = None
        self.waits_for_place = 0
        """Bytes of a large request that waits for a place (large.py); 0: none waits."""
        self._paused = ""
        """Reason for which the client is not read, from PAUSES; "": it is read."""
        self._turn: asyncio.TimerHandle | None = None
        self._partial: asyncio.TimerHandle | None = None
        self._partial_of = 0
        self._in_flight_max = server.settings.limits.in_flight

    @property
    def host(self) -> str:
        """The client's address, by which large requests have their turns."""
        return self._session.facts.host

    # ---- reports of the session ---------------------------------------------------------------------------
    def begin(self, client: asyncio.Transport) -> None:
        if self.waits_for_turn:
            self._conn.stopped = True
            self._steer(client)
            asyncio.get_running_loop().call_soon(self._stay_paused, client)

    def _stay_paused(self, client: asyncio.Transport) -> None:
        """Pauses reading again: uvloop begins to read after `connection_made`, even if that has paused it. What comes
        in between is held."""
        if self._paused and not client.is_closing():
            client.pause_reading()

    def wait_for_turn(self, wait_s: float) -> None:
        self.waits_for_turn = True
        self._turn = asyncio.get_running_loop().call_later(wait_s, self._let_in)

    def _let_in(self) -> None:
        self.waits_for_turn = self._conn.stopped = False
        self._session.turn_soon()
        self.adjust()

    def client_takes(self, takes: bool) -> None:
        """Notes whether the client takes its answers."""
        outbox = self._session.to_client
        if not takes:
            outbox.paused()
            self._conn.stopped = True
        elif outbox.resumed():
            self._conn.stopped = outbox.reply = False
            self._session.turn_soon()
        self.adjust()

    def begin_large(self, size: int, go_on: Callable[[], None]) -> bool:
        """Returns whether a large request or answer is worked on now; if not, `go_on` is called when its turn has come.
        A closed session takes no place: it would keep it for ever."""
        return self._conn.closed or self._server.large.begins(self, size, go_on)

    def park_large(self) -> None:
        """Gives the place of a large request to others while it waits for another broker or for the coordinator."""
        self._server.large.park(self)

    def end_large(self) -> None:
        """Gives back the place of a large request that is answered, never will be, or waits for other members."""
        self._server.large.ended(self)

    def end(self) -> None:
        """Gives back what the session holds: the client's connection is gone."""
        self.end_large()
        self._server.memory.unread.forget(self._session)
        for timer in (self._turn, self._partial):
            if timer is not None:
                timer.cancel()
        self._server.memory.give_back(self)
        self._session = weakref.proxy(self._session)  # see `Upstream._let_go`

    # ---- reading ------------------------------------------------------------------------------------------
    def adjust(self) -> None:
        """Pauses or resumes both sides; called after each change. Passes on the end of the client's half."""
        session = self._session
        client = session.transport
        if client is None:
            return
        if session.facts.left and not client.is_closing():
            self._upstream.pass_eof()
        conn, upstream, to_client = self._conn, self._upstream, session.to_client
        full = to_client.full
        kept = to_client.kept_bytes + upstream.outbox.kept_bytes + conn.order.reply_bytes
        if kept != self._kept_bytes and not conn.closed:
            self._kept_bytes = kept
            self._server.memory.unread.count(session, kept, to_client.reply or conn.order.reply_bytes > 0)
        if (
            conn.held_bytes
            or conn.in_flight >= self._in_flight_max
            or full
            or upstream.outbox.full
            or self._paused
            or self.waits_for_place
            or self._partial is not None
            or self.reserved_bytes
            or upstream.connecting
        ):  # nearly always nothing of this is so
            self._steer(client)
        pause_upstream = full and not conn.asks
        if pause_upstream != upstream.stopped and not client.is_closing():
            upstream.stop_reading(pause_upstream)

    def _steer(self, client: asyncio.Transport) -> None:
        """Decides whether the client is read, how long the rest of a request may take, and when the next turn is."""
        if self._conn.more:
            self._session.turn_soon()
        self._watch_partial()
        why = self._why_pause()
        if why != self._paused and not client.is_closing():
            if not (why and self._paused):
                self._session.stop_reading(bool(why))
            if why:
                self._server.pauses[why] += 1
            self._paused = why

    def _why_pause(self) -> str:
        """Returns the reason to read the client no further; "" to read on."""
        conn = self._conn
        if self._upstream.outbox.full or self._upstream.connecting:
            return "upstream"
        if self._session.to_client.full:
            return "unread"
        if conn.in_flight >= self._in_flight_max:
            return "in_flight"
        if conn.waiting and conn.held_bytes > self._server.settings.held_bytes:
            return "held"
        if self.waits_for_turn:
            return "rate"
        return "memory" if self.waits_for_memory else ""

    def _watch_partial(self) -> None:
        """Reserves memory for what waits or for the rest of a request, and limits the time for that rest. No time runs
        while the client is not read."""
        conn, server = self._conn, self._server
        if conn.closed:
            return
        needed = self.waits_for_place + (conn.partial_bytes if conn.partial else conn.held_bytes)
        if needed > server.memory.own_bytes:
            server.memory.take(self, needed, keep=not conn.partial)
        elif self.reserved_bytes or self.waits_for_memory:
            server.memory.give_back(self)
        waits = conn.partial and not self._why_pause()
        if self._partial is not None and not (waits and conn.requests == self._partial_of):
            self._partial.cancel()
            self._partial = None
        if waits and self._partial is None:
            self._partial_of = conn.requests
            loop = asyncio.get_running_loop()
            self._partial = loop.call_later(server.settings.header_timeout_s, self._session.close, "request_timeout")
