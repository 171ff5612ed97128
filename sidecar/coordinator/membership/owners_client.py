"""Requests about the owners' group beside those of a membership: its members, its coordinator, and LeaveGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import leave_group as lg

LEAVE_AGAIN_S = 0.1
WATCH_S = 1.0
"""Seconds between two FindCoordinator requests while a JoinGroup or SyncGroup waits at the group's coordinator."""


PASSING = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.REBALANCE_IN_PROGRESS,
)
"""Errors that end by themselves."""


class Lost(Exception):
    """Raised when the broker does not know this sidecar's membership or generation any more."""


class GroupRefused(ConnectionLost):
    """Raised for an error that may last until an operator acts."""

    def __init__(self, code: int, problem: str) -> None:
        super().__init__(problem)
        self.code = code


def check(code: int, what: str) -> None:
    """Raises Lost if the error code ends the membership, ConnectionLost for every other error: GroupRefused if it may
    last. `what`: the request."""
    if code == Code.NONE:
        return
    name = name_of(code)
    if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID):
        raise Lost(f"{what}: {name}")
    if code in PASSING:
        raise ConnectionLost(f"{what}: {name}")
    raise GroupRefused(code, f"{what}: {name}")


class OwnersClient:
    """Client for the owners' group. Each request raises ConnectionLost, TimeoutError or WireError."""

    def __init__(self, cluster: Cluster, group_id: str, log: Logger) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._log = log

    async def coordinator(self) -> int:
        """Returns the node id of the broker that coordinates the owners' group."""
        return await self._cluster.coordinator_node(self._group_id, 0)

    async def describe(self) -> Any:
        """Returns the group as DescribeGroups describes it."""
        conn = await self._cluster.coordinator(self._group_id, 0)
        req = dg.DescribeGroupsRequest(groups=[self._group_id])
        res = await conn.request(dg, "DescribeGroups", req, high=5, timeout_s=2.0)
        return res.groups[0]

    async def present(self) -> set[str]:
        """Returns the ids of the members. Raises Lost, too."""
        group = await self.describe()
        check(group.error_code, "DescribeGroups")
        return {m.member_id for m in group.members}

    async def alone(self) -> bool:
        """Returns whether the owners' group has no members; False if no broker answers."""
        try:
            group = await self.describe()
        except NO_ANSWER as exc:
            self._log.debug("other sidecars not looked for", error=str(exc) or "timed out")
            return False
        return group.error_code == Code.NONE and not group.members

    async def leave(self, member_id: str) -> int:
        """Removes a member; returns the node id of the broker that did. Raises if the group may still have it."""
        node = await self.coordinator()
        conn = await self._cluster.lane(node, Lane.REMOVAL)
        member = lg.MemberIdentity(member_id=member_id)
        req = lg.LeaveGroupRequest(group_id=self._group_id, member_id=member_id, members=[member])
        res = await conn.request(lg, "LeaveGroup", req, timeout_s=2.0)
        code = res.error_code or (res.members[0].error_code if res.members else Code.NONE)
        if code not in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
            raise ConnectionLost(f"LeaveGroup: {name_of(code)}")
        return node

    async def try_leave(self, member_id: str) -> None:
        try:
            await self.leave(member_id)
        except NO_ANSWER as exc:
            self._log.warning("could not leave the owners' group; the session will end by itself", error=str(exc))

    async def leave_surely(self, member_id: str, stopping: Callable[[], bool]) -> None:
        """Repeats LeaveGroup until it succeeds or `stopping()`. The coordinator of the owners' group may be the broker
        that is gone: the next one starts every session anew, and this member's partitions would have no owner until
        its session ends."""
        while not stopping():
            try:
                await self.leave(member_id)
                return
            except NO_ANSWER as exc:
                self._log.debug("could not leave the owners' group, trying again", error=str(exc) or "timed out")
                await asyncio.sleep(LEAVE_AGAIN_S)

    async def close_when_moved(self, node: int, conn: BrokerConnection) -> None:
        """Closes `conn`, on which a JoinGroup or SyncGroup waits, when another broker than `node` coordinates the
        group. A broker that stands still or is cut off neither answers nor closes the connection itself."""
        current = node
        while current == node:
            await asyncio.sleep(WATCH_S)
            try:
                current = await self.coordinator()
            except NO_ANSWER as exc:
                self._log.debug("coordinator of the owners' group not found", error=str(exc) or "timed out")
        self._log.info("another broker coordinates the owners' group; joining there", node=current, before=node)
        conn.close()
