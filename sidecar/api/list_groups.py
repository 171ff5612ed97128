"""ListGroups (api 16): the groups whose coordinator is here (docs/reference/behaviour.md, rows 1.27 and 1.28).

v1: the answer adds the throttle time.
v3: it is flexible.
v4: the client may choose by state, and the response has it (KIP-518).
v5: the client may choose by type, and the response has it (KIP-848).

The answer has the broker's groups, without the owners' group and without groups that have records in the state topic.
It also has the managed groups that are owned here: all of them if the client may DESCRIBE the cluster, else those that
it may DESCRIBE. Each group is listed once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate, upstream
from sidecar.api.known_groups import groups_with_records
from sidecar.core.runtime.events import Listed, ListGroups, ListReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import list_groups as lg


def list_groups(call: Call) -> Handler:
    own = call.scope.own
    if not (call.scope.managing or own.group or own.unlisted):
        return FORWARD
    req = yield from slices.request(call, lg.ListGroupsRequest)
    body = yield from upstream(call)
    res = yield from slices.decoded(lg.ListGroupsResponse, call.version, body)
    if res.error_code != Code.NONE:
        return body
    res.groups = yield from slices.chosen(res.groups, lambda g: not own.is_unlisted(g.group_id))
    if not call.scope.managing:
        return (yield from slices.encoded(res, call.version))
    reply: ListReply = yield from coordinate(ListGroups())
    if reply.code != Code.NONE:
        return _failed(call, reply.code)
    listed = yield from slices.chosen(reply.groups, lambda g: call.scope.managed(g.group_id))
    hidden = yield from access.hidden_groups(call, [g.group_id for g in listed])
    if hidden and (yield from access.sees_all_groups(call)):
        hidden = set()
    by_id = {g.group_id: g for g in listed if g.group_id not in hidden}
    listed = [by_id[group_id] for group_id in (yield from slices.sorted_once(by_id))]
    duplicates = yield from _known(call, res.groups, listed)
    if isinstance(duplicates, Code):
        return _failed(call, duplicates)
    res.groups = yield from slices.chosen(res.groups, lambda g: g.group_id not in duplicates)
    states, types = _filter(req.states_filter), _filter(req.types_filter)

    def wanted(g: Listed) -> bool:
        return bool((not states or _names_of(g.state) & states) and (not types or g.group_type.lower() in types))

    shown = yield from slices.chosen(listed, wanted)
    res.groups += yield from slices.made(
        shown, lambda g: lg.ListedGroup(g.group_id, g.protocol_type, g.state, g.group_type)
    )
    return (yield from slices.encoded(res, call.version))


def _known(
    call: Call, at_broker: Iterable[lg.ListedGroup], listed: Iterable[Listed]
) -> Generator[Want, Any, set[str] | Code]:
    """Returns the broker's groups that sidecars list, here or beside another broker; or the error if that is not
    known."""
    listed_ids = {g.group_id for g in listed}
    managed = {g.group_id for g in (yield from slices.chosen(at_broker, lambda g: call.scope.managed(g.group_id)))}
    known = yield from groups_with_records((yield from slices.sorted_once(managed - listed_ids)))
    return known.code if known.code != Code.NONE else (managed & listed_ids) | known.groups


def _failed(call: Call, code: Code) -> bytes:
    """Returns an error: a list that leaves groups out is worse than none. Clients ask again after these two errors
    only."""
    if code != Code.COORDINATOR_LOAD_IN_PROGRESS:
        code = Code.COORDINATOR_NOT_AVAILABLE
    return lg.ListGroupsResponse(error_code=code).encode(call.version)


def _names_of(state: str) -> set[str]:
    """Returns the names by which a filter may give this state. Kafka takes not_ready only, and its AdminClient sends
    NotReady."""
    name = state.lower()
    return {name, "not_ready"} if name == "notready" else {name}


def _filter(wanted: Iterable[str] | None) -> set[str]:
    """Returns a filter's values. It compares without regard to case and surrounding blanks; an empty one takes all."""
    return {w.strip().lower() for w in wanted or ()}
