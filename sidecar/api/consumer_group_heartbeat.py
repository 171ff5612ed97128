"""ConsumerGroupHeartbeat (api 68, KIP-848).

v0: the coordinator makes the member id if there is none. v1: the client makes it; SubscribedTopicRegex is added.
"""

from __future__ import annotations

from sidecar.api import access
from sidecar.api.call import FORWARD, Call, Coordinate, Handler
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.errors import TEXT, Code
from sidecar.wire.generated import consumer_group_heartbeat as ch


def consumer_group_heartbeat(call: Call) -> Handler:
    req = ch.ConsumerGroupHeartbeatRequest.decode(call.version, call.frame, call.pos)
    group_id = req.group_id
    known = call.client.readable.get(group_id)
    if known is None or known[0] != Code.NONE or known[1] <= call.scope.clock():
        if not call.scope.managed(group_id):
            theirs = call.client.broker_versions
            return FORWARD if theirs is None or call.api_key in theirs else _error(call, Code.UNSUPPORTED_VERSION)
        if (refused := (yield from access.refused_read(call, group_id))) != Code.NONE:
            return _error(call, refused)
    names = req.subscribed_topic_names
    if names and call.view.authorizer and (yield from access.hidden_topics(call, names)):
        return _error(call, Code.TOPIC_AUTHORIZATION_FAILED)
    reply = yield Coordinate(to_event(call, req))
    assert isinstance(reply, HeartbeatReply)
    return to_body(call, reply)


def to_event(call: Call, req: ch.ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    owned, names = req.topic_partitions, req.subscribed_topic_names
    return ConsumerHeartbeat(
        req.group_id,
        req.member_id,
        req.member_epoch,
        req.instance_id,
        req.rack_id,
        req.rebalance_timeout_ms,
        None if names is None else tuple(names),
        req.subscribed_topic_regex,
        req.server_assignor,
        None if owned is None else {t.topic_id: tuple(t.partitions) for t in owned},
        call.client_id or "",
        "/" + call.client.host,
        call.version,
        "" if req.member_id else call.scope.new_id(),
    )


def to_body(call: Call, reply: HeartbeatReply) -> bytes:
    assignment: ch.Assignment | None = None
    if reply.assignment is not None:
        parts = [ch.ResponseTopicPartitions(topic_id=t, partitions=list(ps)) for t, ps in reply.assignment.items()]
        assignment = ch.Assignment(topic_partitions=parts)
    return ch.ConsumerGroupHeartbeatResponse(
        error_code=reply.code,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    ).encode(call.version)


def _error(call: Call, code: Code) -> bytes:
    return to_body(call, HeartbeatReply(code, TEXT.get(code)))
