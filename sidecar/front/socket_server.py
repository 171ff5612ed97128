"""Holds the clients' connections and what they have in common: limits, memory, the way to the broker.

As Kafka's SocketServer it knows nothing of requests: those that do not simply pass go to `dispatch`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from sidecar.core.vocabulary.cache import Shared
from sidecar.front.broker_watch import BrokerWatch
from sidecar.front.door import Door
from sidecar.front.large import LargeRequests
from sidecar.front.links import Links
from sidecar.front.memory import shared
from sidecar.front.session import Session
from sidecar.front.settings import FrontSettings
from sidecar.front.unread import Unread
from sidecar.front.upstream import Broker
from sidecar.link.ports import Figures, Logger
from sidecar.proxy.actions import Close, Got
from sidecar.proxy.internal import Internal


class SocketServer:
    """Holds the sessions. `silence`: called when the broker falls silent (broker_watch.py); `topics_passed`: when a
    change of topics has passed (proxy/internal.py)."""

    def __init__(
        self,
        settings: FrontSettings,
        dispatch: Callable[[Session, Got], None],
        silence: Callable[[int, bool], None],
        topics_passed: Callable[[], None],
        figures: Figures,
        log: Logger,
    ) -> None:
        self.settings, self.dispatch, self.log = settings, dispatch, log
        self.broker = Broker(settings.broker, settings.upstream_tls, settings.upstream_host)
        self.internal = Internal(settings.internal_topic, topics_passed)
        unread = Unread(settings.all_unread_bytes)
        self.memory = shared(settings.memory_bytes, settings.door.connections_max, settings.held_bytes, unread)
        self.door = Door(settings.door, figures, log)
        self.sessions, self.pauses = self.door.sessions, self.door.pauses
        self.large = LargeRequests(settings.large_requests, self.pauses, settings.parked_large_requests)
        self.links = Links(self.sessions, figures)
        self.watch = BrokerWatch(settings.silence_ms, self.broker.connect, self.sessions, silence, figures, log)
        self._rights = Shared(settings.remembered_bytes // 4)
        self._steady = Shared(settings.remembered_bytes - self._rights.limit_bytes)
        """Memory for kept answers of all connections: of the broker's authorizer (`_rights`), and to steady
        heartbeats."""
        self._stopping = False
        figures("reserved").set_function(lambda: self.memory.reserved_bytes)
        figures("unread").set_function(lambda: self.memory.unread.total_bytes)
        for what, shared_ in (("rights", self._rights), ("steady", self._steady)):
            figures("remembered", what).set_function(partial(getattr, shared_, "used_bytes"))
            figures("forgotten", what).set_function(partial(getattr, shared_, "forgotten"))

    def opened(self, session: Session) -> str:
        """Takes in a session. Returns why it is one too many; "": it is not."""
        session.facts.share(self._rights)
        session.steady.shared = self._steady
        cause = self.door.opened(session)
        self.links.begin()
        return "shutdown" if self._stopping else cause

    def arriving(self, host: str) -> tuple[str, float]:
        """Takes in a connection before its TLS handshake. Returns why it is one too many, or "", and for how many
        seconds it waits for its turn."""
        return ("shutdown", 0.0) if self._stopping else self.door.arriving(host)

    def gone(self, session: Session, cause: str) -> None:
        self.door.gone(session, cause)

    def refused(self, session: Session, close: Close) -> None:
        self.door.refused(session, close)

    def broker_refused(self, host: str, detail: str) -> None:
        self.door.broker_refused(host, detail)

    def stop(self) -> None:
        """Refuses new connections from now on."""
        self._stopping = True

    async def close(self, until_s: float) -> None:
        """Closes all sessions. `until_s`: monotonic time until which clients may take to notice the end."""
        for session in list(self.sessions):
            session.close("shutdown")
        while self.sessions and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
