"""The leaders of `__consumer_offsets` and of the state topic, and the new ones that ownership does not follow yet."""

from __future__ import annotations

import time
from collections.abc import Set

from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.core.vocabulary.internal_topics import OFFSETS
from sidecar.kafka.cluster import Cluster, ClusterView
from sidecar.kafka.leaders import Leaders
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger

GONE_S = 5.0
"""Seconds after a failed connection to a leader during which leaders are asked for often."""


class LeaderWatch:
    """Watches the leaders. `leaders`: those of `__consumer_offsets` at the start; `state`: those of the
    state topic; `follow_leader_s`: ownership follows a leader that has led for this time, if the sidecar beside it has
    been a member for as long."""

    def __init__(
        self, leaders: tuple[int, ...], state: Leaders, follow_leader_s: float, cluster: Cluster, log: Logger
    ) -> None:
        self._offsets = Leaders(OFFSETS, leaders)
        self._state = state
        self._follow_leader_s = follow_leader_s
        self._cluster = cluster
        self._log = log
        self._led_since_s: dict[int, float] = {}
        """Partition of `__consumer_offsets` whose leader has moved -> monotonic time of the move."""
        self._members_since: dict[int, tuple[str, float]] = {}
        """Node id of a sidecar -> its member id in the owners' group, and the time at which it got that."""

    @property
    def of_offsets(self) -> tuple[int, ...]:
        return self._offsets.now

    @property
    def of_state(self) -> tuple[int, ...]:
        return self._state.now

    # ---- new leaders ----------------------------------------------------------------------------------------
    def members_assigned(self, a: Assignment) -> None:
        before, at_s = self._members_since, time.monotonic()
        named = {node: member_id for node, (member_id, _, _) in a.members.items()}
        self._members_since = {
            node: before[node] if node in before and before[node][0] == member_id else (member_id, at_s)
            for node, member_id in named.items()
        }

    def new(self) -> Set[int]:
        """Returns the partitions of `__consumer_offsets` whose leaders have not led for `follow_leader_s`, or whose
        sidecars have not been members for as long."""
        before_s = time.monotonic() - self._follow_leader_s
        new = {p for p, since_s in self._led_since_s.items() if since_s > before_s}
        well = {node for node, (_, since_s) in self._members_since.items() if since_s <= before_s}
        return new | {p for p, leader in enumerate(self._offsets.now) if leader not in well}

    # ---- answers of brokers -----------------------------------------------------------------------------------
    def lacking(self) -> bool:
        """Returns whether a partition of `__consumer_offsets` has no leader, or one that cannot be reached."""
        return any(n < 0 or self._cluster.unreached(n, GONE_S) for n in set(self._offsets.now))

    async def ask(self) -> ClusterView:
        """Asks any broker for the leaders. Returns an empty view if none answers."""
        try:
            return await self._cluster.refresh([OFFSETS, self._state.topic])
        except NO_ANSWER as exc:
            self._log.debug("leaders not refreshed", problem=str(exc) or "timed out")
            return ClusterView()

    def take(self, view: ClusterView) -> bool:
        """Takes in a view; returns whether it has the state topic's leaders."""
        before = self._offsets.now
        if len(view.leaders.get(OFFSETS, ())) == len(before) and self._offsets.take(view):
            moved = (p for p, (was, n) in enumerate(zip(before, self._offsets.now, strict=True)) if was != n)
            self._led_since_s.update(dict.fromkeys(moved, time.monotonic()))
        return self._state.take(view)
