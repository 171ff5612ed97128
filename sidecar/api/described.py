"""The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: which groups the
client may see, which operations the response lists, and how large it may be (response_limit.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
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
    groups: Sequence[str],
    with_operations: bool,
    describe: Callable[[Call, str], Generator[Want, Any, D]],
    alone: Callable[[D], slices.Message],
    refused: Callable[[str, Code], D],
) -> Generator[Want, Any, list[D]]:
    """Returns one description for each time that a group is named. `alone`: the response with this description alone;
    `refused`: the description of a group that the client may not see, or that does not fit."""
    hidden = yield from access.hidden_groups(call, groups)
    seen = [g for g in groups if g and g not in hidden]
    operations = yield from access.operations(call, seen if with_operations else [])
    descriptions: list[D] = []
    limit = ResponseLimit[D](call, alone)
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
    return descriptions


def or_the_brokers(
    call: Call, refusal: D, request: Callable[[list[str]], slices.Message], response: type[Any]
) -> Generator[Want, Any, D]:
    """Returns the description of a group that the coordinator refuses. A managed group that is not here may be at the
    broker, which lists it: it has had no members since before it was managed. If another broker keeps it, the refusal
    counts: that one would not see the client's rights."""
    group_id, version = refusal.group_id, call.broker_version
    missing = refusal.error_code == Code.GROUP_ID_NOT_FOUND and (refusal.error_message or "").endswith(" not found.")
    if not missing or version < 0 or call.keeper_of(group_id) != call.scope.node_id:
        return refusal
    body = yield from store_at(call, call.scope.node_id, version, request([group_id]).encode(version))
    group: D = slices.only((yield from slices.decoded(response, version, body)).groups)
    return group
