"""DeleteGroups (api 42, KIP-229): docs/reference/behaviour.md, row 1.29.

v0: KIP-229.
v2: it is flexible.
v3: the answer adds an error message, which Kafka has for groups of Streams only.

The client's own broker is asked first whether it may delete. A managed group with members stays. Of an empty one both
the state here and the broker's offsets or share state go, wherever these are kept. Before that the coordinator makes
sure that no placeholder of its own is left there. Share state may take the broker long to delete, while the share
coordinator is away: nothing else waits behind that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate, who
from sidecar.api.share_group_offsets import administrable
from sidecar.api.store import store_at
from sidecar.core.runtime.events import Answer, DeleteGroup, DeletionCheck, DeletionCheckReply
from sidecar.core.share.config import SHARE
from sidecar.core.share.events import Operation
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import OpenOffsets
from sidecar.wire.generated import delete_groups as dl


def delete_groups(call: Call) -> Handler:
    req = yield from slices.request(call, dl.DeleteGroupsRequest)
    refused: dict[str, Code] = {}
    held: set[str] = set()
    parts: dict[tuple[int, bool], list[str]] = {}
    """Groups by broker and by whether it may take long."""
    managed = set((yield from slices.chosen(req.groups_names, call.scope.managed)))
    if not managed:
        return FORWARD
    for group_id in req.groups_names:
        keeper, slow = call.scope.node_id, False
        if group_id in managed:
            code: Code = yield from access.refused_delete(call, group_id)
            check = DeletionCheckReply()
            if code == Code.NONE:
                check = yield from coordinate(DeletionCheck(group_id))
                code = yield from _refusal(call, group_id, check)
            if code != Code.NONE:
                refused[group_id] = code
                continue
            if check.exists:
                held.add(group_id)
            keeper, slow = call.keeper_of(group_id), check.kind == SHARE
        parts.setdefault((keeper, slow), []).append(group_id)
    res = dl.DeleteGroupsResponse()
    for (keeper, slow), groups in parts.items():
        sent = yield from slices.encoded(replace(req, groups_names=groups), call.version)
        body = yield from store_at(call, keeper, call.version, sent, slow=slow)
        res.results += (yield from slices.decoded(dl.DeleteGroupsResponse, call.version, body)).results
    for result in res.results:
        # The broker may know nothing of a group that never committed an offset.
        if result.group_id in held and result.error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            deleted: Answer = yield from coordinate(DeleteGroup(result.group_id, f"deleted by {who(call)}"))
            result.error_code = deleted.code
    res.results += [dl.DeletableGroupResult(g, c) for g, c in refused.items()]
    res.results = yield from slices.as_asked(req.groups_names, res.results, lambda r: r.group_id)
    return (yield from slices.encoded(res, call.version))


def _refusal(call: Call, group_id: str, check: DeletionCheckReply) -> Generator[Want, Any, Code]:
    if check.code != Code.NONE:
        return check.code
    if check.members:
        return Code.NON_EMPTY_GROUP
    if check.kind == SHARE:
        refused: tuple[Code, str | None] = yield from administrable(call, group_id, Operation.DELETE_GROUP)
        return refused[0]
    opened: Answer = yield from coordinate(OpenOffsets(group_id))
    return opened.code
