"""Checks of a new owner map: a sidecar must have made it, not a stranger with the right to READ the owners' group; and
no two sidecars may have one node id."""

from __future__ import annotations

from dataclasses import replace

from sidecar.coordinator.membership.owners_client import OwnersClient
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.membership.roster import REMEDY, Members
from sidecar.kafka.cluster import ConnectionLost
from sidecar.kafka.resolver import joined
from sidecar.link.ports import Logger

STABLE = "Stable"


class MapCheck:
    def __init__(self, node_id: int, roster: Members, group: OwnersClient, log: Logger) -> None:
        self.double = ""
        """Address `host:port` of another sidecar with this node id that was started later; "" if there is none."""
        self._node_id = node_id
        self._roster = roster
        self._group = group
        self._log = log

    async def checked(self, generation: int, leader: str, encoded: bytes, own: bytes | None) -> Assignment:
        """Returns the map of this generation, decoded from `encoded`. `own`: the map that this sidecar has sent as the
        leader; None: another member leads. Raises ConnectionLost if the map is a stranger's: any client that may READ
        the group can lead it when the sidecars have left it, and can send a SyncGroup in the leader's name."""
        if own is not None and encoded != own:
            if self._roster.due("forged"):
                self._log.error("somebody has spoken in this sidecar's name in the owners' group", remedy=REMEDY)
            raise ConnectionLost("the map is somebody else's")
        if own is None and not self._roster.enrolled(leader):
            await self._judge(leader)
        try:
            return Assignment.decode(generation, encoded)
        except ValueError as exc:
            if self._roster.due("unreadable"):
                self._log.error("the map of owners cannot be read", leader=leader, remedy=REMEDY)
            raise ConnectionLost(f"the map of owners cannot be read: {exc}") from None

    async def _judge(self, leader: str) -> None:
        """Raises ConnectionLost if this leader is no sidecar, which removes it from the group, or if the group is not
        stable. A broker that has lost the group's last records has it with former members, one of them the leader."""
        group = await self._group.describe()
        if group.group_state != STABLE:
            raise ConnectionLost("the owners' group has changed already")
        metadata = next((m.member_metadata for m in group.members if m.member_id == leader), b"")
        if await self._roster.surely_none(leader, metadata):
            self._roster.report_leader(leader)
            await self._group.leave(leader)
            raise ConnectionLost("a stranger leads the owners' group")

    def without_doubles(self, a: Assignment, own_id: str) -> Assignment:
        """Returns the map, without this node's partitions if another sidecar has the same node id. This may happen
        for a moment while one sidecar replaces another; but two that stay would fence each other for ever."""
        member_id, host, port = a.members.get(self._node_id, (own_id, "", 0))
        if member_id == own_id:
            self.double = ""
            return a
        self.double = joined([(host, port)])
        self._log.error(
            "another sidecar has this node id; this one owns nothing", node_id=self._node_id, at=self.double
        )
        return replace(a, owners=tuple(-1 if n == self._node_id else n for n in a.owners))
