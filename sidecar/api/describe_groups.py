"""DescribeGroups (api 15, KIP-40): classic groups (docs/reference/behaviour.md, row 1.26).

v1: the answer adds the throttle time.
v3: authorized operations may be asked for (KIP-430).
v4: the response has the members' instance ids (KIP-345).
v5: it is flexible.
v6: a group that is not there is answered GROUP_ID_NOT_FOUND with a message (KIP-1043); before, it is just "Dead".

Groups of other kinds do not exist for this API, unless `compat.describe_modern_as_classic` shows consumer groups to
tools that ask nothing else. A managed group of which nothing but offsets is there is still the broker's: that one is
asked which keeps its offsets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from msgspec.structs import replace

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, PAUSE, Call, Handler, Want, coordinate, upstream
from sidecar.api.known_groups import groups_with_records
from sidecar.api.response_limit import TOO_LARGE_CODE, ResponseLimit
from sidecar.api.store import store_at
from sidecar.core.classic.embedded import CONSUMER_TYPE, assignment, plain_subscription
from sidecar.core.classic.events import DescribeClassic, DescribeClassicReply
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import describe_groups as dg

NOT_FOUND_SINCE = 6


def describe_groups(call: Call) -> Handler:
    req = yield from slices.request(call, dg.DescribeGroupsRequest)
    local = yield from slices.chosen(req.groups, call.scope.managed)
    if not local:
        return FORWARD
    known = yield from groups_with_records(list(dict.fromkeys(local)))
    if known.code == Code.NONE:
        local = [g for g in local if g in known.groups or call.scope.own.is_group(g)]
    ours = set(local)
    theirs = yield from _by_keeper(call, [g for g in req.groups if g not in ours])
    home = theirs.pop(call.scope.node_id, [])
    if not local and not theirs:
        return FORWARD
    res = dg.DescribeGroupsResponse()
    if home:
        body = yield from upstream(call, (yield from slices.encoded(replace(req, groups=home), call.version)))
        res = yield from slices.decoded(dg.DescribeGroupsResponse, call.version, body)
    checked = [*local, *(g for groups in theirs.values() for g in groups)]
    hidden = yield from access.hidden_groups(call, checked)
    wants_operations = req.include_authorized_operations
    operations = yield from access.operations(call, [g for g in checked if g not in hidden] if wants_operations else [])
    descriptions = [
        dg.DescribedGroup(error_code=Code.GROUP_AUTHORIZATION_FAILED, group_id=g) for g in checked if g in hidden
    ]
    limit = ResponseLimit[dg.DescribedGroup](call, lambda group: dg.DescribeGroupsResponse(groups=[group]))
    for i, group_id in enumerate(local):
        if group_id in hidden:
            continue
        yield from slices.turns(i)
        if not limit.full and not limit.knows(group_id):
            yield from limit.described(group_id, (yield from _describe(call, group_id)))
        descriptions.append(limit.take(group_id) or dg.DescribedGroup(error_code=TOO_LARGE_CODE, group_id=group_id))
    for node_id, groups in theirs.items():
        descriptions += yield from _at_another_broker(call, node_id, [g for g in groups if g not in hidden])
    for group in descriptions:
        if group.error_code == Code.NONE:
            group.authorized_operations = operations.get(group.group_id, access.OPERATIONS_OMITTED)
    res.groups = yield from slices.as_asked(req.groups, res.groups + descriptions, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _at_another_broker(call: Call, node_id: int, groups: list[str]) -> Generator[Want, Any, list[dg.DescribedGroup]]:
    if not groups:
        return []
    sent = yield from slices.encoded(dg.DescribeGroupsRequest(groups), call.version)
    body = yield from store_at(call, node_id, call.version, sent)
    return (yield from slices.decoded(dg.DescribeGroupsResponse, call.version, body)).groups


def _by_keeper(call: Call, groups: Iterable[str]) -> Generator[Want, Any, dict[int, list[str]]]:
    """Returns the groups by the broker that is asked for them. Groups that are not managed stay with the client's own
    broker."""
    parts: dict[int, list[str]] = {}

    def place(group_id: str) -> None:
        node_id = call.keeper_of(group_id) if call.scope.managed(group_id) else call.scope.node_id
        parts.setdefault(node_id, []).append(group_id)

    yield from slices.each(groups, place)
    return parts


def _describe(call: Call, group_id: str) -> Generator[Want, Any, dg.DescribedGroup]:
    version = call.version
    reply: DescribeClassicReply = yield from coordinate(DescribeClassic(group_id, version))
    if reply.code == Code.GROUP_ID_NOT_FOUND and call.scope.modern_as_classic:
        modern: DescribeReply = yield from coordinate(DescribeConsumerGroup(group_id))
        if modern.code == Code.NONE:
            return (yield from _modern(call, group_id, modern))
    if reply.code == Code.GROUP_ID_NOT_FOUND:
        if version < NOT_FOUND_SINCE:
            return dg.DescribedGroup(group_id=group_id, group_state="Dead")
        return dg.DescribedGroup(
            error_code=reply.code, error_message=reply.message, group_id=group_id, group_state="Dead"
        )
    if sum(len(m.metadata) + len(m.assignment) for m in reply.members) > slices.SMALL_BYTES:
        yield PAUSE
    members = yield from slices.made(
        reply.members,
        lambda m: dg.DescribedGroupMember(
            m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata, m.assignment
        ),
    )
    return dg.DescribedGroup(
        error_code=reply.code,
        group_id=group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol,
        members=members,
    )


# ---- consumer groups for tools that know classic ones only ---------------------------------------------------------
STATES = {"Assigning": "PreparingRebalance", "Reconciling": "CompletingRebalance"}
"""States of consumer groups -> the classic ones that such tools know. Empty and Stable are the same in both."""


def _modern(call: Call, group_id: str, reply: DescribeReply) -> Generator[Want, Any, dg.DescribedGroup]:
    topics = {name for m in reply.members for _, name, _ in m.assignment}
    if (yield from access.hidden_topics(call, topics)):
        return dg.DescribedGroup(error_code=Code.TOPIC_AUTHORIZATION_FAILED, group_id=group_id)
    return dg.DescribedGroup(
        group_id=group_id,
        group_state=STATES.get(reply.state, reply.state),
        protocol_type=CONSUMER_TYPE,
        protocol_data=reply.assignor,
        members=(yield from slices.made(reply.members, _modern_member)),
    )


def _modern_member(m: DescribedMember) -> dg.DescribedGroupMember:
    held = [(name, partitions) for _, name, partitions in m.assignment]
    topics = m.topic_names or [name for name, _ in held]
    return dg.DescribedGroupMember(
        m.member_id, m.instance_id, m.client_id, m.client_host, plain_subscription(topics), assignment(0, held)
    )
