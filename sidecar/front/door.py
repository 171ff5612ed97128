"""Which connections are let in, and which have been quiet for too long. front.py decides what becomes of requests.

Limits and defaults are Kafka's (max.connections, max.connections.per.ip, max.connection.creation.rate of KIP-612,
connections.max.idle.ms), with one difference: one connection too many is closed at once, where a broker leaves it in
the backlog of its socket. Those that come faster than they may stand in a line, as long as that backlog, and nothing of
them is read until their turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from sidecar.front.session import PAUSES, Session
from sidecar.link.ports import Figures, Logger
from sidecar.proxy.connection import Close

LOOKS = 10
"""So often, in the time that a connection may be quiet, is looked whether it still is."""


@dataclass(frozen=True)
class DoorSettings:
    """`per_address`: for single addresses instead of `per_address_max`. `idle_s` 0: connections may be quiet for ever.
    `rate`: new connections a second, and at once; `line`: so many that came faster wait, more are closed. `repeat_s`: a
    refusal for the same reason is logged so often."""

    connections_max: int = 10_000
    per_address_max: int = 2_147_483_647
    per_address: Mapping[str, int] = field(default_factory=dict)
    idle_s: float = 600.0
    repeat_s: float = 10.0
    rate: int = 2_147_483_647
    line: int = 1_024


class Door:
    def __init__(self, settings: DoorSettings, figures: Figures, log: Logger) -> None:
        self.settings = settings
        self.sessions: dict[Session, None] = {}
        self.pauses = dict.fromkeys(PAUSES, 0)
        """How often reading was paused, by reason. Told when somebody looks: it is on the way of all bytes."""
        self._figures, self._log = figures, log
        self._opened, self._active = figures("opened"), figures("active")
        for why in PAUSES:
            figures("paused", why).set_function(partial(self.pauses.__getitem__, why))
        self._from: Counter[str] = Counter()
        self._so_far = 0
        self._turn_s = float("-inf")
        """When the last connection was read first, or will be; not before a second ago."""
        self._looking = self._large = False
        self._said: dict[str, tuple[float, int]] = {}
        """Reason -> when it may be logged again, and how often it was not since the last line."""

    def opened(self, session: Session) -> str:
        """Returns why this connection is one too many; "": it is not."""
        s, host = self.settings, session.host
        self.sessions[session] = None
        self._so_far += 1
        session.number = session.facts.number = self._so_far
        self._opened.inc()
        self._active.inc()
        self._from[host] += 1
        if s.idle_s and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(s.idle_s / LOOKS, self._look)
        if len(self.sessions) > s.connections_max:
            return "too_many_connections"
        if self._from[host] > s.per_address.get(host, s.per_address_max):
            return "too_many_from_address"
        return self._in_line(session)

    def _in_line(self, session: Session) -> str:
        """A session that comes too early waits for its turn."""
        loop = asyncio.get_running_loop()
        gap_s, now_s = 1 / self.settings.rate, loop.time()
        turn_s = max(self._turn_s, now_s - 1.0) + gap_s
        if turn_s - now_s > self.settings.line * gap_s:
            return "connection_rate"
        self._turn_s = turn_s
        if turn_s > now_s:
            session.waits_for_turn = True
            loop.call_at(turn_s, session.let_in)
        return ""

    def gone(self, session: Session, cause: str) -> None:
        if session in self.sessions:
            del self.sessions[session]
            self._active.inc(-1)
            self._figures("closed", cause).inc()
            self._from[session.host] -= 1
            if not self._from[session.host]:
                del self._from[session.host]

    def large(self) -> bool:
        """To read a large request may take a good part of a second. Between two of them, whoever sent them, the loop
        turns: this sidecar's own heartbeats must leave, or it would lose what it owns."""
        if self._large:
            return False
        self._large = True
        asyncio.get_running_loop().call_soon(self._next_large)
        return True

    def _next_large(self) -> None:
        self._large = False

    def refused(self, session: Session, close: Close) -> None:
        """Bytes that close their connection: counted each time, logged now and then."""
        self._figures("refused", close.cause).inc()
        again_s, silent = self._said.get(close.cause, (0.0, 0))
        now_s = time.monotonic()
        if now_s < again_s:
            self._said[close.cause] = (again_s, silent + 1)
            return
        self._said[close.cause] = (now_s + self.settings.repeat_s, 0)
        more = {"not_logged": silent} if silent else {}
        self._log.warning("frame refused", client=session.host, cause=close.cause, detail=close.detail, **more)

    def _look(self) -> None:
        """Close what nothing has moved on for too long. A request that the coordinator parks is no silence."""
        for session in list(self.sessions):
            cause = session.look()
            if cause and session.quiet > LOOKS:
                session.close(cause) if cause == "idle" else session.abort(cause)
        self._looking = bool(self.sessions)
        if self._looking:
            asyncio.get_running_loop().call_later(self.settings.idle_s / LOOKS, self._look)
