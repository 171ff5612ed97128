"""DescribeGroups (api 15): classic groups (docs/reference/behaviour.md, row 1.26).

v1: the answer adds the throttle time.
v3: authorized operations may be asked for (KIP-430).
v4: the answer tells the members' instance ids (KIP-345).
v5: it is flexible.
v6: a group that is not there is answered GROUP_ID_NOT_FOUND with a message (KIP-1043); before, it is just "Dead".

Managed groups are consumer groups, which do not exist for this API. A managed group of which nothing but offsets is
there is still the broker's.
"""

from __future__ import annotations

from sidecar.api import access
from sidecar.api.call import FORWARD, Call, Handler, coordinate, upstream
from sidecar.core.errors import Code
from sidecar.core.events import KnownGroups, KnownReply, Standing, StandingReply
from sidecar.wire.generated import describe_groups as dg

NOT_FOUND_SINCE = 6


def describe_groups(call: Call) -> Handler:
    req = dg.DescribeGroupsRequest.decode(call.version, call.frame, call.pos)
    local = [g for g in req.groups if call.scope.managed(g)]
    if not local:
        return FORWARD
    known: KnownReply = yield from coordinate(KnownGroups(candidates=tuple(local)))
    if known.code == Code.NONE:
        local = [g for g in local if g in known.groups]
    if not local:
        return FORWARD
    theirs = [g for g in req.groups if g not in local]
    res = dg.DescribeGroupsResponse()
    if theirs:
        req.groups = theirs
        body = yield from upstream(call, req.encode(call.version))
        res = dg.DescribeGroupsResponse.decode(call.version, body)
    hidden = yield from access.hidden_groups(call, local)
    for group_id in local:
        code = Code.GROUP_AUTHORIZATION_FAILED
        if group_id not in hidden:
            # Only the coordinator may say that the group is not classic.
            standing: StandingReply = yield from coordinate(Standing(group_id))
            code = standing.code
        res.groups.append(_not_classic(group_id, code, call.version))
    return res.encode(call.version)


def _not_classic(group_id: str, code: Code, version: int) -> dg.DescribedGroup:
    if code != Code.NONE:
        return dg.DescribedGroup(error_code=code, group_id=group_id)
    if version < NOT_FOUND_SINCE:
        return dg.DescribedGroup(group_id=group_id, group_state="Dead")
    message = f"Group {group_id} is not a classic group."
    return dg.DescribedGroup(
        error_code=Code.GROUP_ID_NOT_FOUND, error_message=message, group_id=group_id, group_state="Dead"
    )
