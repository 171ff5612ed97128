"""ConsumerGroupDescribe (api 69, KIP-848): a consumer group as its members and operators see it.

v0: KIP-848.
v1: the answer tells each member's type (KIP-1099).

Whoever may not DESCRIBE one of the topics in it is told nothing of the group. The sidecar serves this API even if the
broker does not have it; groups that are the broker's are then no consumer groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, PAUSE, Call, Handler, Want, coordinate, upstream
from sidecar.api.room import ANOTHER_TIME, Room
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply, TopicPartitions
from sidecar.core.vocabulary.errors import Code, fitting
from sidecar.wire.generated import consumer_group_describe as cd

NO_OPERATIONS = -2147483648
"""Authorized operations were not asked for, or are not told."""
MANY = 16
"""Members of a group that is described in a turn of its own."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def consumer_group_describe(call: Call) -> Handler:
    req = yield from slices.request(call, cd.ConsumerGroupDescribeRequest)
    asked = req.group_ids
    local = yield from slices.chosen(asked, call.scope.managed)
    ours = set(local)
    theirs = [g for g in asked if g not in ours]
    versions = call.client.broker_versions
    supported = versions is None or call.api_key in versions
    if not local and supported:
        return FORWARD
    res = cd.ConsumerGroupDescribeResponse()
    if theirs and supported:
        req.group_ids = theirs
        body = yield from upstream(call, (yield from slices.encoded(req, call.version)))
        res = yield from slices.response(cd.ConsumerGroupDescribeResponse, call.version, body)
    elif theirs:
        res.groups = [_no_consumers(g) for g in theirs]
    hidden = yield from access.hidden_groups(call, local)
    seen = [g for g in local if g not in hidden]
    may = yield from access.operations(call, seen if req.include_authorized_operations else [])
    room: Room[cd.DescribedGroup] = Room(call, lambda group: cd.ConsumerGroupDescribeResponse(groups=[group]))
    for i, group_id in enumerate(local):
        yield from slices.turns(i)
        if group_id in hidden:
            res.groups.append(_refused(group_id, Code.GROUP_AUTHORIZATION_FAILED))
            continue
        if not room.full and not room.knows(group_id):
            group = yield from _describe(call, group_id)
            if group.error_code == Code.NONE:
                group.authorized_operations = may.get(group_id, NO_OPERATIONS)
            yield from room.described(group_id, group)
        res.groups.append(room.take(group_id) or _refused(group_id, ANOTHER_TIME))
    res.groups = yield from slices.as_asked(asked, res.groups, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _describe(call: Call, group_id: str) -> Generator[Want, Any, cd.DescribedGroup]:
    told: DescribeReply = yield from coordinate(DescribeConsumerGroup(group_id))
    if told.code != Code.NONE:
        # A broker gives no text to a refusal that is not about the group itself.
        return _refused(group_id, told.code, told.message if told.code == Code.GROUP_ID_NOT_FOUND else None)
    topics = {name for m in told.members for _, name, _ in (*m.assignment, *m.target)}
    if (yield from access.hidden_topics(call, topics)):
        return _refused(group_id, Code.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    if len(told.members) > MANY:
        yield PAUSE
    return cd.DescribedGroup(
        group_id=group_id,
        group_state=told.state,
        group_epoch=told.epoch,
        assignment_epoch=told.assignment_epoch,
        assignor_name=told.assignor,
        members=(yield from slices.made(told.members, _member)),
    )


def _member(m: DescribedMember) -> cd.Member:
    return cd.Member(
        member_id=m.member_id,
        instance_id=m.instance_id,
        rack_id=m.rack_id,
        member_epoch=m.member_epoch,
        client_id=m.client_id,
        client_host=m.client_host,
        subscribed_topic_names=list(m.topic_names),
        subscribed_topic_regex=m.topic_regex or "",
        assignment=_assignment(m.assignment),
        target_assignment=_assignment(m.target),
        member_type=CLASSIC_MEMBER if m.classic else CONSUMER_MEMBER,
    )


def _assignment(parts: Iterable[TopicPartitions]) -> cd.Assignment:
    return cd.Assignment([cd.TopicPartitions(topic_id, name, list(ps)) for topic_id, name, ps in parts])


def _no_consumers(group_id: str) -> cd.DescribedGroup:
    return _refused(group_id, Code.GROUP_ID_NOT_FOUND, fitting(f"Group {group_id} is not a consumer group."))


def _refused(group_id: str, code: Code, message: str | None = None) -> cd.DescribedGroup:
    return cd.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id, authorized_operations=NO_OPERATIONS
    )
