"""JoinGroup (api 11), SyncGroup (api 14), Heartbeat (api 12), LeaveGroup (api 13): the classic protocol.

JoinGroup
v1: it adds the rebalance timeout.
v2: the answer adds the throttle time.
v4: a new member must come a second time, with the member id that it was given (KIP-394).
v5: it adds the group instance id (KIP-345).
v6: it is flexible.
v7: the response has the protocol type, and may have no protocol (KIP-559).
v8: it adds a reason (KIP-800).
v9: the response may tell the leader to leave the assignment as it is (KIP-814).

SyncGroup: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible; v5 adds protocol type
and name, which are checked (KIP-559).
Heartbeat: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible.
LeaveGroup: v1 adds the throttle time to the answer; v3 takes several members; v4 is flexible; v5 adds a reason.

Metadata and assignments of members are bytes that pass through as they are. READ of the group is all that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Coordinate, Handler, Want, coordinate, packed, who
from sidecar.api.one_name import left_to_the_broker, name_taken_at_broker
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    Left,
    SyncGroup,
    SyncReply,
)
from sidecar.core.runtime.events import Answer
from sidecar.core.vocabulary.errors import Code
from sidecar.native import unpack
from sidecar.wire.apis import SERVED
from sidecar.wire.frames import header_end
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import sync_group as sy

JOIN = {6: "ntsiisSsqt", 7: "ntsiisSsqt", 8: "ntsiisSsqSt", 9: "ntsiisSsqSt"}
SYNC = {4: "ntsisSqt", 5: "ntsisSSSqt"}
BEAT = {4: "ntsisSt"}
"""Layouts of requests by version, header included, as native/wire_twin.py spells them: those of today's clients, of
which thousands come at a time. Other versions are read by the generated codec, which is slower."""
JOINED, JOINED_SINCE = "ihiSSSbSmt", 9
SYNCED, SYNCED_SINCE = "ihSSBt", 5
"""The layouts of two answers, and the first versions that have them."""
T = TypeVar("T")
NULL_PROTOCOL_SINCE, SEVERAL_SINCE, PROTOCOL_SINCE = 7, 3, 5
"""Versions of JoinGroup, LeaveGroup and SyncGroup: with a null protocol, several members, a checked protocol."""
LEAVING = 2_000
"""Members that leave in one step; only the largest groups have more."""
REASON_MAX = 255
"""Longest reason, in characters. Kafka's own clients send no more; records keep it."""
REMOVED = "member was removed by an admin"
"""Beginning of the reason that Kafka's AdminClient gives."""


def _read(
    call: Call, layouts: Mapping[int, str], message: type[slices.Readable[T]], fields: Callable[[T], tuple[Any, ...]]
) -> Generator[Want, Any, tuple[Any, ...]]:
    """Returns the client id and the fields of the request. At `call.pos` its header goes on after the correlation id.
    Raises WireError: the generated codec decides what is malformed."""
    layout = layouts.get(call.version)
    if layout is not None and slices.small(call):
        with suppress(ValueError):
            return unpack(layout, call.frame, call.pos)
    client_id, pos = header_end(call.frame, call.pos, call.version >= SERVED[call.api_key].flexible_from)
    return (client_id, *fields((yield from slices.request(call, message, pos))))


# ---- JoinGroup ----------------------------------------------------------------------------------------------------
def join_group(call: Call) -> Handler:
    client_id, group_id, session_ms, rebalance_ms, member_id, *identity, protocols, reason = yield from _read_join(call)
    came_ms = call.now_ms
    if not call.scope.managed(group_id):
        code = yield from left_to_the_broker(call, group_id)
        if code != Code.NONE:
            return _joined(JoinReply(code, member_id=""), call.version)
        if not call.scope.managed(group_id):
            return FORWARD
    refused = access.kept_read(call, group_id)
    if refused is None:
        refused = yield from access.refused_read(call, group_id)
    if refused != Code.NONE:
        return _joined(JoinReply(refused, member_id=""), call.version)
    taken = Code.NONE if member_id else (yield from name_taken_at_broker(call, group_id, came_ms))
    if taken != Code.NONE:
        code = Code.INCONSISTENT_GROUP_PROTOCOL if taken == Code.GROUP_ID_NOT_FOUND else taken
        return _joined(JoinReply(code), call.version)
    instance_id, protocol_type = identity
    event = JoinGroup(
        group_id,
        member_id,
        instance_id,
        protocol_type,
        protocols,
        session_ms,
        session_ms if call.version == 0 else rebalance_ms,  # version 0 has one timeout for both
        reason and reason[:REASON_MAX],
        client_id or "",
        "/" + call.client.host,
        call.version,
        "" if member_id else call.scope.new_id(),
        call.client.number,
    )
    reply = yield Coordinate(event)
    assert isinstance(reply, JoinReply)
    return _joined(reply, call.version)


def _read_join(call: Call) -> Generator[Want, Any, tuple[Any, ...]]:
    fields = yield from _read(call, JOIN, jg.JoinGroupRequest, _join_fields)
    return fields if len(fields) == 9 else (*fields, None)  # no reason


def _join_fields(r: jg.JoinGroupRequest) -> tuple[Any, ...]:
    protocols = tuple((p.name, p.metadata) for p in r.protocols)
    identity = (r.member_id, r.group_instance_id, r.protocol_type)
    return (r.group_id, r.session_timeout_ms, r.rebalance_timeout_ms, *identity, protocols, r.reason)


def _joined(reply: JoinReply, version: int) -> bytes:
    protocol = reply.protocol or ("" if version < NULL_PROTOCOL_SINCE else None)  # an empty name is none
    if version == JOINED_SINCE:
        head = (0, reply.code, reply.generation, reply.protocol_type, protocol, reply.leader)
        rows = tuple([(m.member_id, m.instance_id, m.metadata) for m in reply.members])
        return packed(JOINED, *head, reply.skip_assignment, reply.member_id, rows)
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
    fields = yield from _read(call, SYNC, sy.SyncGroupRequest, _sync_fields)
    _, group_id, generation, member_id, instance_id, *protocol, assignments = fields
    if not call.scope.managed(group_id):
        return FORWARD
    protocol_type, protocol_name = protocol or (None, None)
    refused = access.kept_read(call, group_id)
    if refused is None:
        refused = yield from access.refused_read(call, group_id)
    if call.version >= PROTOCOL_SINCE and (protocol_type is None or protocol_name is None):
        refused = Code.INCONSISTENT_GROUP_PROTOCOL  # as a broker, which does so even without READ of the group
    if refused != Code.NONE:
        return _synced(SyncReply(refused), call.version)
    event = SyncGroup(group_id, member_id, instance_id, generation, protocol_type, protocol_name, assignments)
    reply = yield Coordinate(event)
    assert isinstance(reply, SyncReply)
    if reply.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
        # Java's consumer ends by that code here. It joins again by this one, as brokers up to 3.9 had it.
        reply = SyncReply(Code.REBALANCE_IN_PROGRESS)
    return _synced(reply, call.version)


def _sync_fields(r: sy.SyncGroupRequest) -> tuple[Any, ...]:
    assignments = tuple((a.member_id, a.assignment) for a in r.assignments)
    identity = (r.group_id, r.generation_id, r.member_id, r.group_instance_id)
    return (*identity, r.protocol_type, r.protocol_name, assignments)


def _synced(reply: SyncReply, version: int) -> bytes:
    if version == SYNCED_SINCE:
        return packed(SYNCED, 0, reply.code, reply.protocol_type, reply.protocol, reply.assignment)
    return sy.SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    ).encode(version)


# ---- Heartbeat ----------------------------------------------------------------------------------------------------
def heartbeat(call: Call) -> Handler:
    _, group_id, generation, member_id, instance_id = yield from _read(call, BEAT, hb.HeartbeatRequest, _beat_fields)
    if not call.scope.managed(group_id):
        return FORWARD
    code = access.kept_read(call, group_id)
    if code is None:
        code = yield from access.refused_read(call, group_id)
    if code == Code.NONE:
        reply = yield Coordinate(ClassicHeartbeat(group_id, member_id, instance_id, generation))
        assert isinstance(reply, Answer)
        # A coordinator that is still loading answers NONE: the member is not to blame (row 1.16).
        code = Code.NONE if reply.code == Code.COORDINATOR_LOAD_IN_PROGRESS else reply.code
    return hb.HeartbeatResponse(error_code=code).encode(call.version)


def _beat_fields(r: hb.HeartbeatRequest) -> tuple[Any, ...]:
    return (r.group_id, r.generation_id, r.member_id, r.group_instance_id)


# ---- LeaveGroup ---------------------------------------------------------------------------------------------------
def leave_group(call: Call) -> Handler:
    req = yield from slices.request(call, le.LeaveGroupRequest)
    if not call.scope.managed(req.group_id):
        return FORWARD
    refused = yield from access.refused_read(call, req.group_id)
    if refused != Code.NONE:
        return le.LeaveGroupResponse(error_code=refused).encode(call.version)
    if call.version < SEVERAL_SINCE:
        members = [Leaving(req.member_id, None, None)]
    else:
        members = yield from slices.made(
            req.members, lambda m: Leaving(m.member_id, m.group_instance_id, _leaves(call, m))
        )
    code, left = yield from _left(req.group_id, members)
    results = yield from slices.made(left, lambda m: le.MemberResponse(m.member_id, m.instance_id, m.code))
    if call.version < SEVERAL_SINCE and code == Code.NONE and results:
        code = left[0].code
    return (yield from slices.encoded(le.LeaveGroupResponse(error_code=code, members=results), call.version))


def _left(group_id: str, members: list[Leaving]) -> Generator[Want, Any, tuple[Code, list[Left]]]:
    """Lets members leave, at most `LEAVING` in a step, so no step holds the loop for long; each step is one rebalance
    at most."""
    left: list[Left] = []
    for at in range(0, max(len(members), 1), LEAVING):
        reply: LeaveReply = yield from coordinate(LeaveGroup(group_id, tuple(members[at : at + LEAVING])))
        if reply.code != Code.NONE:
            return Code(reply.code), []
        left += reply.members
    return Code.NONE, left


def _leaves(call: Call, m: le.MemberIdentity) -> str | None:
    """Returns the reason for the record. It names the client if that removes another member: a client that sends an
    instance id alone is not that member, and Kafka's tools use this reason when they remove by member id (KIP-800)."""
    reason = (m.reason or "")[:REASON_MAX]
    if (not m.member_id and m.group_instance_id is not None) or reason.startswith(REMOVED):
        return f"{reason or 'not provided'} (removed by {who(call)})"
    return m.reason and reason
