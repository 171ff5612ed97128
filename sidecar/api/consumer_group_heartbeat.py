"""ConsumerGroupHeartbeat (api 68, KIP-848).

v0: the coordinator makes the member id if there is none. v1: the client makes it; SubscribedTopicRegex is added.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, PAUSE, Call, Coordinate, Handler, Want, upstream
from sidecar.api.heartbeat_reply import CODE, GROUP_ID_NOT_FOUND, to_body
from sidecar.api.one_name import left_to_the_broker, name_taken_at_broker
from sidecar.api.store import store_at
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.modern.validation import unknown_member
from sidecar.core.vocabulary.errors import TEXT, Code, fitting
from sidecar.core.vocabulary.topic_regex import compile_into_cache, is_validated
from sidecar.native import unpack
from sidecar.wire.frames import header_end
from sidecar.wire.generated import consumer_group_heartbeat as ch

LAYOUTS = ("ntssiSSiaSpt", "ntssiSSiaSSpt")
"""Layouts of the request by version, header included, as native/wire_twin.py spells them."""
REGEX_SINCE = 1
"""The first version with a regular expression. Brokers before 4.0 have version 0."""
NO_REGEX = "The broker of this group does not support regular expressions in ConsumerGroupHeartbeat."


def consumer_group_heartbeat(call: Call) -> Handler:
    """Answers a heartbeat. This handler reads the header of its request itself, which begins at `call.pos`."""
    event, came_ms = (yield from to_event(call)), call.now_ms
    group_id, names = event.group_id, event.topic_names
    if event.member_epoch == 0 and not call.scope.managed(group_id):
        code = yield from left_to_the_broker(call, group_id)
        if code != Code.NONE:
            return _error(code)
    if not call.scope.managed(group_id):
        return (yield from _at_the_broker(call, event))
    refused = access.kept_read(call, group_id)
    if refused is None:
        refused = yield from access.refused_read(call, group_id)
    if refused != Code.NONE:
        return _error(refused)
    if names and call.view.authorizer and (yield from access.hidden_topics(call, names)):
        return _error(Code.TOPIC_AUTHORIZATION_FAILED)
    taken = (yield from name_taken_at_broker(call, group_id, came_ms)) if event.member_epoch == 0 else Code.NONE
    if taken == Code.GROUP_ID_NOT_FOUND:
        return _error(taken, fitting(f"Group {group_id} is not a consumer group."))
    if taken != Code.NONE:
        return _error(taken)
    if event.topic_regex and not is_validated(event.topic_regex):
        yield PAUSE
        compile_into_cache(event.topic_regex)
    reply = yield Coordinate(event)
    assert isinstance(reply, HeartbeatReply)
    return to_body(reply)


def _at_the_broker(call: Call, event: ConsumerHeartbeat) -> Handler:
    """Passes a heartbeat to the broker, which has the group. A member that was silent while its group moved there is
    unknown at the broker, which may not have the group, or no consumer groups at all. The broker's error would end such
    a client; UNKNOWN_MEMBER_ID makes it join, and a join gets the broker's answer."""
    version, may_be_gone = call.broker_version, event.member_epoch != 0 and call.scope.managing
    if version < 0:
        return _error(Code.UNSUPPORTED_VERSION) if event.member_epoch == 0 else to_body(_not_a_member(event))
    if version < REGEX_SINCE and event.topic_regex:
        return _error(Code.UNSUPPORTED_VERSION, NO_REGEX)
    if version == call.version and not may_be_gone:
        return FORWARD
    body = yield from (upstream(call) if version == call.version else _in_version(call, version))
    if not may_be_gone:
        return body
    return to_body(_not_a_member(event)) if body[CODE] == GROUP_ID_NOT_FOUND else body


def _in_version(call: Call, version: int) -> Generator[Want, Any, bytes]:
    """Sends the request in this version. The answers of all versions have the same bytes."""
    call.client_id, pos = header_end(call.frame, call.pos, flexible=True)
    req = yield from slices.request(call, ch.ConsumerGroupHeartbeatRequest, pos)
    req.subscribed_topic_regex = None
    return (yield from store_at(call, call.scope.node_id, version, (yield from slices.encoded(req, version))))


def _not_a_member(event: ConsumerHeartbeat) -> HeartbeatReply:
    refused = unknown_member(event.member_id, event.group_id)
    return HeartbeatReply(refused.code, refused.message)


def to_event(call: Call) -> Generator[Want, Any, ConsumerHeartbeat]:
    """Reads the request. Raises WireError. The generated codec, which is slower, decides what is malformed."""
    fields: tuple[Any, ...] | None = None
    if slices.small(call):
        with suppress(ValueError):
            fields = unpack(LAYOUTS[call.version], call.frame, call.pos)
    if fields is None:
        fields = yield from _slowly(call)
    client_id, group_id, member_id, epoch, instance_id, rack_id, timeout_ms, names, *rest = fields
    regex = rest[0] if len(rest) == 3 else None
    return ConsumerHeartbeat(
        group_id,
        member_id,
        epoch,
        instance_id,
        rack_id,
        timeout_ms,
        names,
        regex,
        rest[-2],
        rest[-1],
        client_id or "",
        "/" + call.client.host,
        call.version,
        "" if member_id else call.scope.new_id(),
    )


def _slowly(call: Call) -> Generator[Want, Any, tuple[Any, ...]]:
    client_id, pos = header_end(call.frame, call.pos, flexible=True)
    r = yield from slices.request(call, ch.ConsumerGroupHeartbeatRequest, pos)
    owned, names = r.topic_partitions, r.subscribed_topic_names
    return (
        client_id,
        r.group_id,
        r.member_id,
        r.member_epoch,
        r.instance_id,
        r.rack_id,
        r.rebalance_timeout_ms,
        None if names is None else tuple(names),
        r.subscribed_topic_regex,
        r.server_assignor,
        None if owned is None else {t.topic_id: tuple(t.partitions) for t in owned},
    )


def _error(code: Code, message: str | None = None) -> bytes:
    return to_body(HeartbeatReply(code, message or TEXT.get(code)))
