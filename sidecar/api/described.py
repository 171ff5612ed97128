"""The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: which groups the
client may see, which operations the response lists, and how large it may be (response_limit.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from sidecar.api import access, slices
from sidecar.api.call import Call, Want
from sidecar.api.response_limit import TOO_LARGE_CODE, ResponseLimit
from sidecar.api.store import store_at
from sidecar.core.vocabulary.errors import Code

MANY = 16
"""Largest number of members that are described without a pause."""
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
D = TypeVar("D", bound=Any)
"""The DescribedGroup of one of the APIs."""


def described(
    call: Call,
    req: Any,
    describe: Callable[[Call, str], Generator[Want, Any, D]],
    response: type[Any],
    refused: Callable[[str, Code], D],
) -> Generator[Want, Any, list[D]]:
    """Returns one description for each time that `req`, which has only groups of the sidecars, names a group.
    `refused`: the description of a group that the client may not see, or that does not fit."""
    groups: list[str] = req.group_ids
    hidden = yield from access.hidden_groups(call, groups)
    seen = [g for g in groups if g and g not in hidden]
    operations = yield from access.operations(call, seen if req.include_authorized_operations else [])
    descriptions: list[D] = []
    limit = ResponseLimit[D](call, lambda group: response(groups=[group]))
    for i, group_id in enumerate(groups):
        yield from slices.turns(i)
        if group_id in hidden:
            descriptions.append(refused(group_id, Code.GROUP_AUTHORIZATION_FAILED))
            continue
        if not group_id:  # a pattern such as .* matches it
            descriptions.append(refused(group_id, Code.INVALID_GROUP_ID))
            continue
        if not limit.full and not limit.knows(group_id):
            group = yield from describe(call, group_id)
            if group.error_code == Code.NONE:
                group.authorized_operations = operations.get(group_id, access.OPERATIONS_OMITTED)
            yield from limit.described(group_id, group)
        descriptions.append(limit.take(group_id) or refused(group_id, TOO_LARGE_CODE))
    return (yield from _with_the_brokers(call, req, response, descriptions))


def _with_the_brokers(
    call: Call, req: Any, response: type[Any], descriptions: list[D]
) -> Generator[Want, Any, list[D]]:
    """Returns the descriptions, with the broker's of groups that are not here. It may have them, and lists them then:
    they have had no members since before they were managed. Groups that another broker keeps are not asked for: that
    one would not see the client's rights."""
    missing = yield from slices.chosen(descriptions, lambda g: _missing(g) and _kept_here(call, g.group_id))
    if not missing or call.broker_version < 0:
        return descriptions
    req.group_ids = list(dict.fromkeys(g.group_id for g in missing))
    sent = yield from slices.encoded(req, call.broker_version)
    body = yield from store_at(call, call.scope.node_id, call.broker_version, sent)
    at_broker = (yield from slices.decoded(response, call.broker_version, body)).groups
    found = {g.group_id: g for g in at_broker}
    return (yield from slices.made(descriptions, lambda g: found.get(g.group_id, g) if _missing(g) else g))


def _missing(group: Any) -> bool:
    return group.error_code == Code.GROUP_ID_NOT_FOUND and bool((group.error_message or "").endswith(" not found."))


def _kept_here(call: Call, group_id: str) -> bool:
    return call.keeper_of(group_id) == call.scope.node_id
