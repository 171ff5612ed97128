"""DeleteGroups (api 42, KIP-229): docs/reference/behaviour.md, row 1.29.

v0: KIP-229.
v2: it is flexible. (v3, of Kafka 4.4, adds an error message and is not served yet.)

A managed group with members stays. Of an empty one both the state here and the broker's offsets go: the broker is
asked first, because only its authorizer knows who may delete.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sidecar.api import access
from sidecar.api.call import Call, Handler, Want, coordinate, upstream
from sidecar.core.errors import Code
from sidecar.core.events import Answer, DeleteGroup, Standing, StandingReply
from sidecar.wire.generated import delete_groups as dl


def delete_groups(call: Call) -> Handler:
    req = dl.DeleteGroupsRequest.decode(call.version, call.frame, call.pos)
    refused: dict[str, Code] = {}
    held: set[str] = set()
    for group_id in req.groups_names:
        if not call.scope.managed(group_id):
            continue
        standing: StandingReply = yield from coordinate(Standing(group_id))
        code = yield from _refusal(call, group_id, standing)
        if code != Code.NONE:
            refused[group_id] = code
        elif standing.exists:
            held.add(group_id)
    theirs = [g for g in req.groups_names if g not in refused]
    res = dl.DeleteGroupsResponse()
    if theirs:
        req.groups_names = theirs
        body = yield from upstream(call, req.encode(call.version))
        res = dl.DeleteGroupsResponse.decode(call.version, body)
    for result in res.results:
        # The broker may know nothing of a group that never committed an offset.
        if result.group_id in held and result.error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            deleted: Answer = yield from coordinate(DeleteGroup(result.group_id))
            result.error_code = deleted.code
    res.results += [dl.DeletableGroupResult(g, c) for g, c in refused.items()]
    return res.encode(call.version)


def _refusal(call: Call, group_id: str, standing: StandingReply) -> Generator[Want, Any, Code]:
    if standing.code != Code.NONE or not standing.members:
        return standing.code
    # The broker cannot be asked about DELETE without deleting. Who may delete may also describe.
    hidden = yield from access.hidden_groups(call, [group_id])
    return Code.GROUP_AUTHORIZATION_FAILED if hidden else Code.NON_EMPTY_GROUP
