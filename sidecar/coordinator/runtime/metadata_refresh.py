"""Reads topics, client addresses and leaders from the brokers: at intervals, and at once when a request waits."""

from __future__ import annotations

import time
from collections.abc import Callable

from sidecar.coordinator.runtime.broker_absence import BrokerAbsence
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.leader_watch import LeaderWatch
from sidecar.coordinator.runtime.topic_refresh import ALL, Names
from sidecar.coordinator.statelog.startup import Control
from sidecar.coordinator.statelog.topic_existence import KnownTopics, any_there
from sidecar.coordinator.statelog.topic_watch import StateTopic
from sidecar.kafka.cluster import ClusterView
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger

QUICK_S = 0.1
"""Seconds between two questions for the leaders while one cannot be reached."""
LATE_MS = 200
"""Time after which a commit or append may be waiting for a leader that stands still: its kernel still accepts
connections, so it counts as reached."""


class MetadataRefresh:
    """Refreshes the metadata. `same_listener`: the listing of the sidecar's own broker has the leaders, too;
    `resume()`: called when that broker has answered; `placed()`: called when leaders and addresses may have changed."""

    def __init__(
        self,
        control: Control,
        coordinator: Coordinator,
        topic: StateTopic,
        leaders: LeaderWatch,
        absence: BrokerAbsence,
        same_listener: bool,
        log: Logger,
    ) -> None:
        self._control = control
        self._coordinator = coordinator
        self._topic = topic
        self._leaders = leaders
        self._absence = absence
        self._same_listener = same_listener
        self._log = log
        self._known = KnownTopics(control.view.topics)
        self._fresh = coordinator.fresh
        self._fresh.served = True
        self.resume: Callable[[], None] = lambda: None
        self.placed: Callable[[], None] = lambda: None
        coordinator.topics(control.view.topics)

    async def rounds(self, refresh_s: float) -> None:
        """Reads for ever, every `refresh_s` and on demand."""
        due_s = time.monotonic() + refresh_s
        while True:
            wanted = await self._fresh.rest(min(QUICK_S, refresh_s))
            if time.monotonic() >= due_s:
                await self._refresh()
                due_s = time.monotonic() + refresh_s
            elif wanted:
                await self._look()
            elif self._leaders_may_move():
                self._take(await self._leaders.ask())

    def _leaders_may_move(self) -> bool:
        """Returns whether a leader may have moved: one is missing or cannot be reached, or a takeover, a commit or an
        append waits longer than for a leader that answers."""
        c = self._coordinator
        return (
            self._leaders.lacking()
            or c.service.loading() > 0
            or c.placeholders.commits.waited_for(LATE_MS)
            or c.takeovers.terms.late(LATE_MS / 1000)
        )

    def _take(self, view: ClusterView) -> None:
        if self._leaders.take(view):
            self._coordinator.takeovers.terms.led_by(self._leaders.of_state)
        self.placed()

    async def _refresh(self) -> None:
        """Reads topics and client addresses from the sidecar's own broker, leaders from any broker that answers."""
        try:
            await self._fresh.during(self._list(ALL))
            if not self._absence.silent:
                self.resume()
        except NO_ANSWER as exc:
            self._log.debug("metadata not refreshed", problem=str(exc) or "timed out")
            self._absence.unanswered()
        self._take(self._control.view if self._same_listener else await self._leaders.ask())

    async def _look(self) -> None:
        """Reads topics for requests that cannot wait for the next refresh."""
        try:
            await self._fresh.during(self._list(self._fresh.names()))
        except NO_ANSWER as exc:
            self._log.debug("metadata not refreshed", problem=str(exc) or "timed out")

    async def _list(self, names: Names) -> None:
        """Reads all topics, if one of these exists. Raises ConnectionLost, TimeoutError, WireError."""
        if names is not ALL and not await any_there(names, self._control):
            return
        await self._control.look(self._absence.gone_s)
        self._absence.answered()
        await self._topic.look(self._control.view.topics, self._coordinator.cluster)
        self._coordinator.pin_state_topic(self._topic.id)
        self._coordinator.topics(await self._known.next(self._control.view.topics, self._control))
