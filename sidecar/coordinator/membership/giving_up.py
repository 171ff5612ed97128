"""Tells the other sidecars which partitions this process answers for no more: they need not wait for its leases then.

The record is written after the coordinator has dropped the partitions, which ends all grants to its front. A front in
another process may hear of that a moment later, so no record is written then.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, FORMER_MAX, Assignment, SidecarInfo
from sidecar.coordinator.membership.roster import Members
from sidecar.link.ports import Tasks


class GivingUp:
    def __init__(self, roster: Members, tasks: Tasks, tells: bool) -> None:
        """`tells`: whether this sidecar tells the others, which is safe only if the front is in this process."""
        self._roster = roster
        self._tasks = tasks
        self._tells = tells
        self._former: tuple[str, ...] = ()
        """The last member ids that this process has lost, the newest last."""

    def said(self, said: SidecarInfo) -> SidecarInfo:
        """Returns the info for the next membership: it names the former member ids too."""
        return replace(said, former=self._former)

    def lost(self, member_id: str) -> None:
        """Adds a lost member id to the former ones: the process owns nothing under it."""
        if member_id and self._tells:
            self._former = (*self._former, member_id)[-FORMER_MAX:]

    def withdrew(self, member_id: str, said: SidecarInfo) -> None:
        """Tells the others that this member answers for nothing: the sidecar stays out of the group for a while."""
        self._tell(member_id, said, EVERY_GENERATION, "withdrew")

    def assigned(self, before: Assignment, there: Assignment, member_id: str, said: SidecarInfo) -> None:
        """Tells the others if the map of the new generation, `there`, takes partitions from this sidecar."""
        mine = said.node_id
        if any(n == mine and there.owner_of(p) != mine for p, n in enumerate(before.owners)):
            self._tell(member_id, said, there.generation, "gave partitions up")

    def leaves(self, said: SidecarInfo) -> SidecarInfo:
        """Returns the info for the last record of this sidecar: it answers for nothing any more."""
        return replace(self.said(said), gave_up=EVERY_GENERATION) if self._tells else said

    def _tell(self, member_id: str, said: SidecarInfo, generation: int, why: str) -> None:
        if self._tells:
            told = replace(self.said(said), gave_up=generation)
            self._tasks.spawn(self._roster.tell(member_id, told, why), f"roster: {why}")
