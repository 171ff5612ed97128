"""Keeps a client's link to the broker open while the client asks for something.

A broker ends a connection that is idle for its `connections.max.idle.ms`, and with the link ends the client's
connection. A member that only sends heartbeats is answered here, so its link is idle, while at a broker its heartbeats
keep the connection open. So the link of such a client carries a request of the sidecar's own in time: one for all
requests of the client since the link was used, and none for a client that is silent.

A link is kept and not made anew, because a client's SASL authentication belongs to the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

from sidecar.front.broker_watch import PROBE
from sidecar.front.session import Session
from sidecar.link.ports import Figures

LOOKS = 10
"""Checks for idle links in each `limit_ms`, the time after which the broker ends an idle link."""
NO_REPLY = 0
"""The token of a request whose answer nobody waits for."""
AT_ONCE, PACE_S = 100, 0.02
"""Links that are used at once, and the pause until the next ones."""
IDLE_LOOKS = 3
"""Checks without a use after which a link is idle."""


def idle(s: Session) -> bool:
    """Returns whether the client has asked for something since its link was used, some time ago."""
    conn, link = s.conn, s.upstream
    active = link.looks >= IDLE_LOOKS and conn.requests != link.requests
    return active and link.transport is not None and conn.between() and not (conn.closed or link.owed or link.cut_off)


class Links:
    def __init__(self, sessions: Collection[Session], figures: Figures) -> None:
        self._sessions = sessions
        self._limit_ms = 0
        self._look: asyncio.TimerHandle | None = None
        self._idle: deque[Session] = deque()
        self._kept = figures("links_kept")

    def limit(self, limit_ms: int) -> None:
        """Takes in the time after which the broker ends an idle link; not above 0: it ends none."""
        if limit_ms != self._limit_ms:
            self._limit_ms = limit_ms
            if self._look is not None:
                self._look.cancel()
                self._look = None
            if self._sessions:
                self.begin()

    def begin(self) -> None:
        """Schedules the next check; called when a connection opens."""
        if self._look is None and self._limit_ms > 0:
            look_s = self._limit_ms / LOOKS / 1000
            self._look = asyncio.get_running_loop().call_later(look_s, self._look_at_all)

    def _look_at_all(self) -> None:
        self._look = None
        busy = bool(self._idle)
        for session in self._sessions:
            session.upstream.looks += 1
            if idle(session):
                self._idle.append(session)
        if not busy:
            self._use_some()
        if self._sessions:
            self.begin()

    def _use_some(self) -> None:
        """Uses some of the idle links. There may be thousands, and the broker answers each request."""
        for _ in range(min(AT_ONCE, len(self._idle))):
            session = self._idle.popleft()
            if idle(session):
                session.run(session.conn.ask(NO_REPLY, PROBE))
                self._kept.inc()
        if self._idle:
            asyncio.get_running_loop().call_later(PACE_S, self._use_some)
