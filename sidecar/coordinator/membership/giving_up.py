"""Publishes which partitions this process answers for no more, so that other sidecars need not wait for its leases.

The record is written after the coordinator has dropped the partitions, which ends all grants to its front. A front in
another process may learn of that a moment later, so no record is written then.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, FORMER_MAX, Assignment, SidecarInfo
from sidecar.coordinator.membership.roster import Members
from sidecar.link.ports import Tasks


class GivingUp:
    def __init__(self, roster: Members, tasks: Tasks, publishes: bool) -> None:
        """`publishes`: safe only if the front is in this process."""
        self._roster = roster
        self._tasks = tasks
        self._publishes = publishes
        self._former: tuple[str, ...] = ()
        """The last member ids that this process has lost, the newest last."""

    def info(self, info: SidecarInfo) -> SidecarInfo:
        """Returns the info for the next membership: it names the former member ids too."""
        return replace(info, former=self._former)

    def add_former(self, member_id: str) -> None:
        """Adds a lost member id to the former ones: the process owns nothing under it."""
        if member_id and self._publishes:
            self._former = (*self._former, member_id)[-FORMER_MAX:]

    def publish_withdrawal(self, member_id: str, info: SidecarInfo) -> None:
        """Tells the others that this member answers for nothing: the sidecar stays out of the group for a while."""
        self._publish(member_id, info, EVERY_GENERATION, "withdrew")

    def assigned(self, before: Assignment, after: Assignment, member_id: str, info: SidecarInfo) -> None:
        """Tells the others if the map of the new generation, `after`, takes partitions from this sidecar."""
        node_id = info.node_id
        if any(n == node_id and after.owner_of(p) != node_id for p, n in enumerate(before.owners)):
            self._publish(member_id, info, after.generation, "gave partitions up")

    def last_info(self, info: SidecarInfo) -> SidecarInfo:
        """Returns the info for the last record of this sidecar: it answers for nothing any more."""
        return replace(self.info(info), gave_up=EVERY_GENERATION) if self._publishes else info

    def _publish(self, member_id: str, info: SidecarInfo, generation: int, why: str) -> None:
        if self._publishes:
            info = replace(self.info(info), gave_up=generation)
            self._tasks.spawn(self._roster.update(member_id, info, why), f"roster: {why}")
