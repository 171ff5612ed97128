"""ShareGroupDescribe (api 77, KIP-932): a share group as its members and operators see it.

v0: early access in Kafka 4.0, with the bytes of v1.
v1: the first that was released.

A client without DESCRIBE of a topic of the members' assignments gets no description of the group. As at Kafka, topics
that members only subscribe to do not count. The placeholder is not shown: it is a member of the broker's group, which
only a client that asks the broker itself sees.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate, upstream
from sidecar.api.described import HIDDEN_TOPICS, described
from sidecar.core.share.events import DescribedShareMember, DescribeShareGroup, ShareDescribeReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import share_group_describe as sd


def share_group_describe(call: Call) -> Handler:
    req = yield from slices.request(call, sd.ShareGroupDescribeRequest)
    group_ids = req.group_ids
    local = yield from slices.chosen(group_ids, call.scope.keeps_from_broker)
    if not local:
        return FORWARD
    ours = set(local)
    theirs = [g for g in group_ids if g not in ours]
    res = sd.ShareGroupDescribeResponse()
    if theirs:
        req.group_ids = theirs
        body = yield from upstream(call, (yield from slices.encoded(req, call.version)))
        res = yield from slices.decoded(sd.ShareGroupDescribeResponse, call.version, body)
    req.group_ids = local
    res.groups += yield from described(call, req, _describe, sd.ShareGroupDescribeResponse, _refused)
    res.groups = yield from slices.as_asked(group_ids, res.groups, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _describe(call: Call, group_id: str) -> Generator[Want, Any, sd.DescribedGroup]:
    reply: ShareDescribeReply = yield from coordinate(DescribeShareGroup(group_id))
    if reply.code != Code.NONE:
        # A broker gives no text to a refusal that is not about the group itself.
        return _refused(group_id, reply.code, reply.message if reply.code == Code.GROUP_ID_NOT_FOUND else None)
    topics = {name for m in reply.members for _, name, _ in m.assignment}
    if (yield from access.hidden_topics(call, topics)):
        return _refused(group_id, Code.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    return sd.DescribedGroup(
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor,
        members=(yield from slices.made(reply.members, _member)),
    )


def _member(m: DescribedShareMember) -> sd.Member:
    assigned = [sd.TopicPartitions(topic_id, name, list(ps)) for topic_id, name, ps in m.assignment]
    return sd.Member(
        member_id=m.member_id,
        rack_id=m.rack_id,
        member_epoch=m.member_epoch,
        client_id=m.client_id,
        client_host=m.client_host,
        subscribed_topic_names=list(m.topic_names),
        assignment=sd.Assignment(assigned),
    )


def _refused(group_id: str, code: Code, message: str | None = None) -> sd.DescribedGroup:
    return sd.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id, authorized_operations=access.OPERATIONS_OMITTED
    )
