"""Decides which connections are let in, and closes those that have been quiet for too long. Requests are
dispatcher.py's.

Limits are Kafka's (max.connections, max.connections.per.ip, max.connection.creation.rate of KIP-612,
connections.max.idle.ms), with one difference: a broker leaves one connection too many in the backlog of its socket.
Here the oldest one that has never sent a request gives way to it, and where there is none it is closed at once. Those
that come faster than they may stand in a line, as long as that backlog, and nothing of them is read until their turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial

from sidecar.front.flow_control import PAUSES
from sidecar.front.session import Session
from sidecar.front.settings import DoorSettings
from sidecar.link.ports import Figures, Logger
from sidecar.proxy.actions import Close

LOOKS = 10
"""Checks for quiet connections in each `idle_s`, the time that a connection may be quiet."""


class Door:
    def __init__(self, settings: DoorSettings, figures: Figures, log: Logger) -> None:
        self.settings = settings
        self.sessions: dict[Session, None] = {}
        self._silent: dict[Session, float] = {}
        """Sessions without a request -> since when, the oldest first. Some have sent one since they were put in."""
        self._first: asyncio.TimerHandle | None = None
        self.pauses = dict.fromkeys(PAUSES, 0)
        """Pauses in reading, by reason. A plain dict, which a scrape reads: all bytes pass here."""
        self._figures, self._log = figures, log
        self._opened, self._active = figures("opened"), figures("active")
        for why in PAUSES:
            figures("paused", why).set_function(partial(self.pauses.__getitem__, why))
        self._from: Counter[str] = Counter()
        self._so_far = self._arriving = 0
        self._turn_s = float("-inf")
        """Monotonic time of the last connection's turn, in seconds. `_turn` counts it as at most a second ago."""
        self._looking = False
        self._log_again: dict[tuple[str, str], tuple[float, int]] = {}
        """Event and reason -> when it may be logged again, and how many lines were left out since the last one."""

    def opened(self, session: Session) -> str:
        """Returns why this connection is one too many; "": it is not."""
        s, host = self.settings, session.facts.host
        self.sessions[session] = None
        self._so_far += 1
        session.facts.number = self._so_far
        self._opened.inc()
        self._active.inc()
        self._from[host] += 1
        if s.idle_s and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(s.idle_s / LOOKS, self._look)
        if self._from[host] > s.per_ip_overrides.get(host, s.per_ip_max):
            return "too_many_from_address"  # before another connection gives way to it
        if len(self.sessions) > s.connections_max and not self._make_room():
            return "too_many_connections"
        wait_s = 0.0 if session.had_turn else self._turn()
        if wait_s is None:
            return "connection_rate"
        self._is_silent(session, wait_s)
        if wait_s > 0:  # a session that comes too early waits for its turn
            session.flow.wait_for_turn(wait_s)
        return ""

    def arriving(self, host: str) -> tuple[str, float]:
        """Takes in a connection that has to finish its handshake before it becomes a session. Returns why it is one too
        many, or "", and for how many seconds it waits for its turn. An accepted one counts until `let_go`."""
        s = self.settings
        if self._from[host] >= s.per_ip_overrides.get(host, s.per_ip_max):
            return "too_many_from_address", 0.0
        if len(self.sessions) + self._arriving >= s.connections_max and not self._make_room():
            return "too_many_connections", 0.0
        wait_s = self._turn()
        if wait_s is None:
            return "connection_rate", 0.0
        self._arriving += 1
        self._from[host] += 1
        return "", wait_s

    def let_go(self, host: str) -> None:
        """Uncounts an arriving connection, which becomes a session in a moment or is gone."""
        self._arriving -= 1
        self._one_less(host)

    # ---- connections without a request --------------------------------------------------------------------
    def _is_silent(self, session: Session, wait_s: float) -> None:
        """Puts a session among those without a request. Its time begins when it is read."""
        self._silent[session] = asyncio.get_running_loop().time() + wait_s
        if self._first is None:
            self._first = asyncio.get_running_loop().call_later(self.settings.first_s, self._look_at_first)

    def _oldest_silent(self) -> Session | None:
        """Returns the oldest session without a request, and drops those that have sent one from the table."""
        while self._silent:
            session = next(iter(self._silent))
            if not session.conn.requests:
                return session
            del self._silent[session]
        return None

    def _make_room(self) -> bool:
        """Closes the oldest session without a request. Returns whether that made room for another connection."""
        oldest = self._oldest_silent()
        if oldest is None or oldest.flow.waits_for_turn:  # then all the others wait, too
            return False
        del self._silent[oldest]
        oldest.abort("crowded_out")
        return True

    def _look_at_first(self) -> None:
        loop, self._first = asyncio.get_running_loop(), None
        while (oldest := self._oldest_silent()) is not None:
            until_s = self._silent[oldest] + self.settings.first_s
            if until_s > loop.time():
                self._first = loop.call_at(until_s, self._look_at_first)
                return
            del self._silent[oldest]
            if oldest.conn.held_bytes:  # it has begun one, and `header_timeout_ms` has it; or it is not read
                self._silent[oldest] = loop.time()
            else:
                oldest.close("no_request")

    def _turn(self) -> float | None:
        """Returns the seconds until the next connection's turn; None: the line is too long."""
        gap_s, now_s = 1 / self.settings.rate, asyncio.get_running_loop().time()
        turn_s = max(self._turn_s, now_s - 1.0) + gap_s
        if turn_s - now_s > self.settings.line * gap_s:
            return None
        self._turn_s = turn_s
        return max(turn_s - now_s, 0.0)

    def gone(self, session: Session, cause: str) -> None:
        if session in self.sessions:
            del self.sessions[session]
            self._silent.pop(session, None)
            self._active.inc(-1)
            self._figures("closed", cause).inc()
            self._one_less(session.facts.host)

    def _one_less(self, host: str) -> None:
        self._from[host] -= 1
        if not self._from[host]:
            del self._from[host]

    def refused(self, session: Session, close: Close) -> None:
        """Counts bytes that close their connection each time, and logs them now and then."""
        self._figures("refused", close.cause).inc()
        self.log_seldom("frame refused", session.facts.host, close.cause, close.detail, client_id=close.client_id)

    def broker_refused(self, host: str, detail: str) -> None:
        """Logs that the TLS handshake with the broker failed. Until that is repaired no client can use this sidecar."""
        self.log_seldom("no TLS with the broker", host, "broker_tls", detail)

    def log_seldom(self, event: str, host: str, cause: str, detail: str, **more: object) -> None:
        """Logs an event, but the same event and cause only now and then."""
        again_s, silent = self._log_again.get((event, cause), (0.0, 0))
        now_s = time.monotonic()
        if now_s < again_s:
            self._log_again[event, cause] = (again_s, silent + 1)
            return
        self._log_again[event, cause] = (now_s + self.settings.repeat_s, 0)
        if silent:
            more["not_logged"] = silent
        self._log.warning(event, client=host, cause=cause, detail=detail, **more)

    def _look(self) -> None:
        """Closes sessions on which nothing has moved for too long. A request that the coordinator parks is no
        silence."""
        for session in list(self.sessions):
            cause = session.look()
            if cause and session.quiet > LOOKS:
                session.close(cause) if cause == "idle" else session.abort(cause)
        self._looking = bool(self.sessions)
        if self._looking:
            asyncio.get_running_loop().call_later(self.settings.idle_s / LOOKS, self._look)
