"""JoinGroup (api 11), SyncGroup (api 14), Heartbeat (api 12), LeaveGroup (api 13): the classic protocol.

JoinGroup
v1: it adds the rebalance timeout.
v2: the answer adds the throttle time.
v4: a new member must come a second time, with the member id that it was given (KIP-394).
v5: it adds the group instance id (KIP-345).
v6: it is flexible.
v7: the answer tells the protocol type (KIP-559).
v8: it adds a reason (KIP-800).
v9: the answer may tell the leader to leave the assignment as it is (KIP-814).

SyncGroup: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible; v5 adds protocol type
and name, which are checked (KIP-559).
Heartbeat: v1 adds the throttle time to the answer, v3 the group instance id; v4 is flexible.
LeaveGroup: v1 adds the throttle time to the answer; v3 takes several members; v4 is flexible; v5 adds a reason.

The classic protocol is not served for managed groups yet. Their clients get the error that a broker gives to a member
which the group's protocol does not admit.
"""

from __future__ import annotations

from typing import Protocol

from sidecar.api.call import FORWARD, Call, Handler
from sidecar.core.errors import Code
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import sync_group as sy


class Response(Protocol):
    def encode(self, version: int) -> bytes: ...


def join_group(call: Call) -> Handler:
    req = jg.JoinGroupRequest.decode(call.version, call.frame, call.pos)
    code = Code.INCONSISTENT_GROUP_PROTOCOL
    res = jg.JoinGroupResponse(error_code=code, generation_id=-1, member_id=req.member_id)
    return (yield from _refuse(call, req.group_id, res))


def sync_group(call: Call) -> Handler:
    req = sy.SyncGroupRequest.decode(call.version, call.frame, call.pos)
    return (yield from _refuse(call, req.group_id, sy.SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID)))


def heartbeat(call: Call) -> Handler:
    req = hb.HeartbeatRequest.decode(call.version, call.frame, call.pos)
    return (yield from _refuse(call, req.group_id, hb.HeartbeatResponse(error_code=Code.UNKNOWN_MEMBER_ID)))


def leave_group(call: Call) -> Handler:
    req = le.LeaveGroupRequest.decode(call.version, call.frame, call.pos)
    return (yield from _refuse(call, req.group_id, le.LeaveGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID)))


def _refuse(call: Call, group_id: str, res: Response) -> Handler:
    yield from ()  # nothing is asked of anybody
    return res.encode(call.version) if call.scope.managed(group_id) else FORWARD
