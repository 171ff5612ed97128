"""Whose the map of owners is: the leader's of the sidecars, or a stranger's who may READ their group; and whether two
sidecars have one node id."""

from __future__ import annotations

from dataclasses import replace

from sidecar.coordinator.membership.owners_client import OwnersClient
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.membership.roster import REMEDY, Members
from sidecar.kafka.cluster import ConnectionLost
from sidecar.link.ports import Logger

STABLE = "Stable"


class MapCheck:
    def __init__(self, node_id: int, roster: Members, group: OwnersClient, log: Logger) -> None:
        self.double = ""
        """Where another sidecar is that has this node id, and was started later."""
        self._node_id = node_id
        self._roster = roster
        self._group = group
        self._log = log

    async def checked(self, generation: int, leader: str, told: bytes, own: bytes | None) -> Assignment:
        """The map of this generation. `own`: what this sidecar has sent as the leader; None: another one leads. Raises
        ConnectionLost if the map is a stranger's: whoever may READ the group can lead it when the sidecars have left
        it, and can speak in the leader's name."""
        if own is not None and told != own:
            if self._roster.due("forged"):
                self._log.error("somebody has spoken in this sidecar's name in the owners' group", remedy=REMEDY)
            raise ConnectionLost("the map is somebody else's")
        if own is None and not self._roster.enrolled(leader):
            await self._judge(leader)
        try:
            return Assignment.decode(generation, told)
        except ValueError as exc:
            if self._roster.due("unreadable"):
                self._log.error("the map of owners cannot be read", leader=leader, remedy=REMEDY)
            raise ConnectionLost(f"the map of owners cannot be read: {exc}") from None

    async def _judge(self, leader: str) -> None:
        """Raises ConnectionLost if this leader is no sidecar and is removed, or if that cannot be told. A broker that
        has lost the group's last records has it with former members, of which one led it."""
        group = await self._group.describe()
        if group.group_state != STABLE:
            raise ConnectionLost("the owners' group has changed already")
        metadata = next((m.member_metadata for m in group.members if m.member_id == leader), b"")
        if await self._roster.surely_none(leader, metadata):
            self._roster.report_leader(leader)
            await self._group.leave(leader)
            raise ConnectionLost("a stranger leads the owners' group")

    def without_doubles(self, a: Assignment, own_id: str) -> Assignment:
        """The map without this node id, if another sidecar has the same id. For a moment that may be so while one
        sidecar takes another one's place; but two of them would shut each other out for ever."""
        member_id, host, port = a.members.get(self._node_id, (own_id, "", 0))
        if member_id == own_id:
            self.double = ""
            return a
        self.double = f"{host}:{port}"
        self._log.error(
            "another sidecar has this node id; this one owns nothing", node_id=self._node_id, at=self.double
        )
        return replace(a, owners=tuple(-1 if n == self._node_id else n for n in a.owners))
