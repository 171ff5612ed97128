"""Requests of the one member that a sidecar holds in a broker's group: look, join, sync, heartbeat, leave.

It is a static member: a join with its instance id and no member id replaces it, and the broker refuses all further
requests of the former holder with FENCED_INSTANCE_ID (KIP-345).

Its protocol type is that of consumers, so that tools know the group as an ordinary one once the placeholder is given
up. Its protocol has a name of its own, so no consumer can join the group beside it. Its subscription cannot be read:
then the broker lets no offset expire, and refuses to turn the group into one of the new protocol (Kafka's
ClassicGroup.offsetExpirationCondition, ConsumerGroup.fromClassicGroup).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sidecar.core.runtime.offset_checks import MemberIdentity
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import sync_group as sg

INSTANCE_ID = "kafka-group-sidecar"
PROTOCOL_TYPE, PROTOCOL = "consumer", "kafka-group-sidecar"
UNREADABLE = b""
NO_PARTITIONS = struct.pack(">hii", 0, 0, -1)
"""A ConsumerProtocolAssignment without topics, which tools can show."""
REBALANCE_TIMEOUT_MS = 60_000
"""Rebalance timeout, which also limits the broker's wait for SyncGroup after JoinGroup."""
JOIN_LOWEST, JOIN_HIGHEST = 5, 9
"""Versions of JoinGroup; static members are known since version 5."""
LOOK_LOWEST, LOOK_HIGHEST = 4, 5
"""Versions of DescribeGroups. Since 4 it has instance ids; since 6 unknown groups have an error."""


def readable(topics: Collection[str]) -> bytes:
    """Returns a subscription whose topics the broker can read, as it reads version 0. It claims version 1 and ends too
    early for that, so the group still cannot be turned into one of the new protocol."""
    names = b"".join(struct.pack(">h", len(raw)) + raw for raw in (t.encode() for t in sorted(topics)))
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Looked:
    """A broker's description of one group. `member_id`: of the placeholder, whichever sidecar holds it, or empty;
    `others`: whether the group has other members."""

    code: int
    state: str
    member_id: str
    others: bool

    @property
    def settled(self) -> bool:
        """Whether the placeholder is there and no JoinGroup for it is parked: the next one is answered at once."""
        return bool(self.member_id) and self.state in ("Stable", "CompletingRebalance")


async def look(conn: BrokerConnection, groups: Iterable[str], timeout_s: float) -> dict[str, Looked]:
    req = dg.DescribeGroupsRequest(groups=list(groups))
    res = await conn.request(dg, "DescribeGroups", req, high=LOOK_HIGHEST, low=LOOK_LOWEST, timeout_s=timeout_s)
    answers = {}
    for g in res.groups:
        ours = [m.member_id for m in g.members if m.group_instance_id == INSTANCE_ID]
        answers[g.group_id] = Looked(g.error_code, g.group_state, ours[0] if ours else "", len(g.members) > len(ours))
    return answers


async def join(
    conn: BrokerConnection, group_id: str, member_id: str, subscription: bytes, session_ms: int, timeout_s: float
) -> jg.JoinGroupResponse:
    """Joins as the placeholder. Without a member id, this replaces its present holder."""
    req = jg.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=member_id,
        group_instance_id=INSTANCE_ID,
        protocol_type=PROTOCOL_TYPE,
        protocols=[jg.JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
    )
    res: jg.JoinGroupResponse = await conn.request(
        jg, "JoinGroup", req, high=JOIN_HIGHEST, low=JOIN_LOWEST, timeout_s=timeout_s
    )
    return res


def must_sync(res: jg.JoinGroupResponse) -> bool:
    """Returns whether a new generation has begun whose leader the broker waits for. It has not when the placeholder has
    only changed hands."""
    return res.leader == res.member_id and not res.skip_assignment


async def sync(conn: BrokerConnection, group_id: str, identity: MemberIdentity, timeout_s: float) -> int:
    req = sg.SyncGroupRequest(
        group_id=group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=PROTOCOL,
        assignments=[sg.SyncGroupRequestAssignment(member_id=identity.member_id, assignment=NO_PARTITIONS)],
    )
    res = await conn.request(sg, "SyncGroup", req, timeout_s=timeout_s)
    return int(res.error_code)


async def heartbeat(conn: BrokerConnection, group_id: str, identity: MemberIdentity, timeout_s: float) -> int:
    req = hb.HeartbeatRequest(group_id, identity.generation, identity.member_id, identity.instance_id)
    res = await conn.request(hb, "Heartbeat", req, timeout_s=timeout_s)
    return int(res.error_code)


async def leave(conn: BrokerConnection, group_id: str, member_id: str, timeout_s: float) -> int:
    """Removes only this member: one that has replaced it stays."""
    member = lg.MemberIdentity(member_id=member_id, group_instance_id=INSTANCE_ID)
    req = lg.LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[member])
    res = await conn.request(lg, "LeaveGroup", req, low=3, timeout_s=timeout_s)
    if res.error_code != Code.NONE or not res.members:
        return int(res.error_code)
    return int(res.members[0].error_code)


async def release(conn: BrokerConnection, group_id: str, timeout_s: float = 10.0) -> str:
    """Removes the placeholder, whichever sidecar holds it. Returns the outcome in words. Raises ConnectionLost."""
    answer = (await look(conn, [group_id], timeout_s))[group_id]
    if not answer.member_id:
        return "no placeholder is there"
    code = await leave(conn, group_id, answer.member_id, timeout_s)
    if code not in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
        raise ConnectionLost(f"LeaveGroup: {name_of(code)}")
    return "released"
