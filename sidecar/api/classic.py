"""JoinGroup (api 11), SyncGroup (api 14), Heartbeat (api 12), LeaveGroup (api 13): the classic protocol.

JoinGroup
v1: it adds the rebalance timeout.
v2: the answer adds the throttle time.
v4: a new member must come a second time, with the member id that it was given (KIP-394).
v5: it adds the group instance id (KIP-345).
v6: it is flexible.
v7: the answer tells the protocol type, and may tell no protocol (KIP-559).
v8: it adds a reason (KIP-800).
v9: the answer may tell the leader to leave the assignment as it is (KIP-814).

SyncGroup: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible; v5 adds protocol type
and name, which are checked (KIP-559).
Heartbeat: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible.
LeaveGroup: v1 adds the throttle time to the answer; v3 takes several members; v4 is flexible; v5 adds a reason.

What members say and are assigned is bytes that pass through as they are. READ of the group is all that they need.
"""

from __future__ import annotations

from sidecar.api import access
from sidecar.api.call import FORWARD, Call, Handler, coordinate
from sidecar.api.one_name import taken_at_the_broker
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    SyncGroup,
    SyncReply,
)
from sidecar.core.errors import Code
from sidecar.core.events import Answer
from sidecar.native import pack
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import sync_group as sy

JOINED, JOINED_SINCE, NO_MEMBERS = "ihiSSSbSbt", 9, 1
"""The layout of a JoinGroup's answer without members (native/wire_twin.py), and the version that has it. The count of a
compact array is one more than that of its elements."""
NULL_PROTOCOL_SINCE, SEVERAL_SINCE, PROTOCOL_SINCE = 7, 3, 5
"""Versions of JoinGroup, LeaveGroup and SyncGroup."""


# ---- JoinGroup ----------------------------------------------------------------------------------------------------
def join_group(call: Call) -> Handler:
    req, came_ms = jg.JoinGroupRequest.decode(call.version, call.frame, call.pos), call.now_ms
    if not call.scope.managed(req.group_id):
        return FORWARD
    refused = yield from access.refused_read(call, req.group_id)
    if refused != Code.NONE:
        return _joined(JoinReply(refused, member_id=""), call.version)
    if not req.member_id and (yield from taken_at_the_broker(call, req.group_id, came_ms)):
        return _joined(JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL), call.version)
    v0 = call.version == 0  # it has one timeout for both
    event = JoinGroup(
        req.group_id,
        req.member_id,
        req.group_instance_id,
        req.protocol_type,
        tuple((p.name, p.metadata) for p in req.protocols),
        req.session_timeout_ms,
        req.session_timeout_ms if v0 else req.rebalance_timeout_ms,
        req.reason,
        call.client_id or "",
        "/" + call.client.host,
        call.version,
        "" if req.member_id else call.scope.new_id(),
    )
    reply: JoinReply = yield from coordinate(event)
    return _joined(reply, call.version)


def _joined(reply: JoinReply, version: int) -> bytes:
    protocol = reply.protocol
    if protocol is None and version < NULL_PROTOCOL_SINCE:
        protocol = ""
    if version == JOINED_SINCE and not reply.members:  # all but one of a large group, many at a time
        head = (0, reply.code, reply.generation, reply.protocol_type, protocol, reply.leader)
        return pack(JOINED, *head, reply.skip_assignment, reply.member_id, NO_MEMBERS)
    members = [jg.JoinGroupResponseMember(m.member_id, m.instance_id, m.metadata) for m in reply.members]
    return jg.JoinGroupResponse(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=members,
    ).encode(version)


# ---- SyncGroup ----------------------------------------------------------------------------------------------------
def sync_group(call: Call) -> Handler:
    req = sy.SyncGroupRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.managed(req.group_id):
        return FORWARD
    if call.version >= PROTOCOL_SINCE and (req.protocol_type is None or req.protocol_name is None):
        return sy.SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL).encode(call.version)
    refused = yield from access.refused_read(call, req.group_id)
    if refused != Code.NONE:
        return sy.SyncGroupResponse(error_code=refused).encode(call.version)
    event = SyncGroup(
        req.group_id,
        req.member_id,
        req.group_instance_id,
        req.generation_id,
        req.protocol_type,
        req.protocol_name,
        tuple((a.member_id, a.assignment) for a in req.assignments),
    )
    reply: SyncReply = yield from coordinate(event)
    return sy.SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    ).encode(call.version)


# ---- Heartbeat ----------------------------------------------------------------------------------------------------
def heartbeat(call: Call) -> Handler:
    req = hb.HeartbeatRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.managed(req.group_id):
        return FORWARD
    code = yield from access.refused_read(call, req.group_id)
    if code == Code.NONE:
        event = ClassicHeartbeat(req.group_id, req.member_id, req.group_instance_id, req.generation_id)
        reply: Answer = yield from coordinate(event)
        # A coordinator that is still loading says that all is well: the member is not to blame (row 1.16).
        code = Code.NONE if reply.code == Code.COORDINATOR_LOAD_IN_PROGRESS else reply.code
    return hb.HeartbeatResponse(error_code=code).encode(call.version)


# ---- LeaveGroup ---------------------------------------------------------------------------------------------------
def leave_group(call: Call) -> Handler:
    req = le.LeaveGroupRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.managed(req.group_id):
        return FORWARD
    refused = yield from access.refused_read(call, req.group_id)
    if refused != Code.NONE:
        return le.LeaveGroupResponse(error_code=refused).encode(call.version)
    if call.version < SEVERAL_SINCE:
        members: tuple[Leaving, ...] = (Leaving(req.member_id, None, None),)
    else:
        members = tuple(Leaving(m.member_id, m.group_instance_id, m.reason) for m in req.members)
    reply: LeaveReply = yield from coordinate(LeaveGroup(req.group_id, members))
    code = reply.code
    told = [le.MemberResponse(m.member_id, m.instance_id, m.code) for m in reply.members]
    if call.version < SEVERAL_SINCE and code == Code.NONE and told:
        code = reply.members[0].code
    return le.LeaveGroupResponse(error_code=code, members=told).encode(call.version)
