"""ConsumerGroupDescribe (api 69, KIP-848): a consumer group as its members and operators see it.

v0: KIP-848.
v1: the response has each member's type (KIP-1099).

A client without DESCRIBE of one of its topics gets no description of the group. The sidecar serves this API even if the
broker does not have it; groups that are the broker's are then no consumer groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, PAUSE, Call, Handler, Want, coordinate
from sidecar.api.described import HIDDEN_TOPICS, MANY, described
from sidecar.api.store import store_at
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply
from sidecar.core.modern.events import TopicPartitions
from sidecar.core.vocabulary.errors import Code, fitting
from sidecar.wire.generated import consumer_group_describe as cd

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def consumer_group_describe(call: Call) -> Handler:
    req = yield from slices.request(call, cd.ConsumerGroupDescribeRequest)
    group_ids = req.group_ids
    local = yield from slices.chosen(group_ids, call.scope.managed)
    ours = set(local)
    theirs = [g for g in group_ids if g not in ours]
    version = call.broker_version
    if not local and version == call.version:
        return FORWARD
    res = cd.ConsumerGroupDescribeResponse()
    if theirs and version >= 0:
        req.group_ids = theirs
        sent = yield from slices.encoded(req, version)
        body = yield from store_at(call, call.scope.node_id, version, sent)
        res = yield from slices.decoded(cd.ConsumerGroupDescribeResponse, version, body)
    elif theirs:
        res.groups = [_no_consumers(g) for g in theirs]
    req.group_ids = local
    res.groups += yield from described(call, req, _describe, cd.ConsumerGroupDescribeResponse, _refused)
    res.groups = yield from slices.as_asked(group_ids, res.groups, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _describe(call: Call, group_id: str) -> Generator[Want, Any, cd.DescribedGroup]:
    reply: DescribeReply = yield from coordinate(DescribeConsumerGroup(group_id))
    if reply.code != Code.NONE:
        # A broker gives no text to a refusal that is not about the group itself.
        return _refused(group_id, reply.code, reply.message if reply.code == Code.GROUP_ID_NOT_FOUND else None)
    topics = {name for m in reply.members for _, name, _ in (*m.assignment, *m.target)}
    if (yield from access.hidden_topics(call, topics)):
        return _refused(group_id, Code.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    if len(reply.members) > MANY:
        yield PAUSE
    return cd.DescribedGroup(
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor,
        members=(yield from slices.made(reply.members, _member)),
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
    if not group_id:
        return _refused(group_id, Code.INVALID_GROUP_ID)
    return _refused(group_id, Code.GROUP_ID_NOT_FOUND, fitting(f"Group {group_id} is not a consumer group."))


def _refused(group_id: str, code: Code, message: str | None = None) -> cd.DescribedGroup:
    return cd.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id, authorized_operations=access.OPERATIONS_OMITTED
    )
