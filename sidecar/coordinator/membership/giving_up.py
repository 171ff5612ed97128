"""Tells the other sidecars what this process answers for no more, so that they need not wait for the end of its leases.

It is told after the coordinator has dropped the partitions, which ends all that it granted to its front. A front in
another process may hear of that a moment later, so there nothing is told.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, FORMER_MAX, Assignment, SidecarInfo
from sidecar.coordinator.membership.roster import Members
from sidecar.link.ports import Tasks


class GivingUp:
    def __init__(self, roster: Members, tasks: Tasks, tells: bool) -> None:
        """`tells`: the front is in this process."""
        self._roster = roster
        self._tasks = tasks
        self._tells = tells
        self._former: tuple[str, ...] = ()
        """Member ids that this process had before."""

    def said(self, said: SidecarInfo) -> SidecarInfo:
        """The words of the next membership."""
        return replace(said, former=self._former)

    def lost(self, member_id: str) -> None:
        """This process is no member any more, and owns nothing."""
        if member_id and self._tells:
            self._former = (*self._former, member_id)[-FORMER_MAX:]

    def withdrew(self, member_id: str, said: SidecarInfo) -> None:
        """It stays without a membership for a while."""
        self._tell(member_id, said, EVERY_GENERATION, "withdrew")

    def assigned(self, before: Assignment, there: Assignment, member_id: str, said: SidecarInfo) -> None:
        """The map of a new generation is followed."""
        mine = said.node_id
        if any(n == mine and there.owner_of(p) != mine for p, n in enumerate(before.owners)):
            self._tell(member_id, said, there.generation, "gave partitions up")

    def leaves(self, said: SidecarInfo) -> SidecarInfo:
        """The last words."""
        return replace(self.said(said), gave_up=EVERY_GENERATION) if self._tells else said

    def _tell(self, member_id: str, said: SidecarInfo, generation: int, why: str) -> None:
        if self._tells:
            told = replace(self.said(said), gave_up=generation)
            self._tasks.spawn(self._roster.tell(member_id, told, why), f"roster: {why}")
