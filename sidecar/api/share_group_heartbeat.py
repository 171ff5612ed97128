"""ShareGroupHeartbeat (api 76, KIP-932).

v0: early access in Kafka 4.0. It has the bytes of v1, and is the broker's.
v1: the first that was released.

A managed group of another kind with this name refuses the member, also where share groups are left to the broker: the
broker does not know managed groups.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Coordinate, Handler, Want, upstream
from sidecar.api.heartbeat_reply import CODE, GROUP_ID_NOT_FOUND, to_body
from sidecar.api.one_name import join_refused_by_managed_group, left_to_the_broker, taken_from_share
from sidecar.core.modern.validation import unknown_member
from sidecar.core.share.config import SHARE
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.share.validation import check_member_id
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError, fitting
from sidecar.native import unpack
from sidecar.wire.frames import header_end
from sidecar.wire.generated import share_group_heartbeat as sh

LAYOUT = "ntssiSat"
"""Layout of the request, header included, as native/wire_twin.py spells it."""
STABLE_SINCE = 1


def share_group_heartbeat(call: Call) -> Handler:
    """Answers a heartbeat. This handler reads the header of its request itself, which begins at `call.pos`."""
    event, came_ms = (yield from to_event(call)), call.now_ms
    group_id, names = event.group_id, event.topic_names
    if not call.scope.share or call.version < STABLE_SINCE:
        return (yield from _left_to_the_broker(call, event))
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
        return _error(refused, text=False)
    try:
        check_member_id(event.member_id)
    except CoordinatorError as exc:
        return _error(exc.code, text=False)
    if names and call.view.authorizer and (yield from access.hidden_topics(call, names)):
        return _error(Code.TOPIC_AUTHORIZATION_FAILED, text=False)
    if event.member_epoch == 0:
        taken = yield from taken_from_share(call, group_id, came_ms)
        if taken != Code.NONE:
            return _not_a_share_group(group_id) if taken == Code.GROUP_ID_NOT_FOUND else _error(taken)
    reply = yield Coordinate(event)
    assert isinstance(reply, ShareHeartbeatReply)
    return to_body(reply)


def _left_to_the_broker(call: Call, event: ShareHeartbeat) -> Handler:
    code = yield from join_refused_by_managed_group(call, event.group_id, event.topic_names or (), SHARE)
    if code == Code.NONE:
        return FORWARD
    if code != Code.GROUP_ID_NOT_FOUND:
        return _error(code, text=False)
    return _not_a_share_group(event.group_id)


def _at_the_broker(call: Call, event: ShareHeartbeat) -> Handler:
    """Passes a heartbeat to the broker, which has the group. A member that was silent while its group moved there is
    unknown at the broker, which may not have the group: GROUP_ID_NOT_FOUND ends its client, and UNKNOWN_MEMBER_ID makes
    it join."""
    if event.member_epoch <= 0 or not call.scope.managing:
        return FORWARD
    body = yield from upstream(call)
    if body[CODE] != GROUP_ID_NOT_FOUND:
        return body
    refused = unknown_member(event.member_id, event.group_id)
    return _error(refused.code, refused.message)


def to_event(call: Call) -> Generator[Want, Any, ShareHeartbeat]:
    """Reads the request. Raises WireError. The generated codec, which is slower, decides what is malformed."""
    fields: tuple[Any, ...] | None = None
    if slices.small(call):
        with suppress(ValueError):
            fields = unpack(LAYOUT, call.frame, call.pos)
    if fields is None:
        client_id, pos = header_end(call.frame, call.pos, flexible=True)
        r = yield from slices.request(call, sh.ShareGroupHeartbeatRequest, pos)
        names = None if r.subscribed_topic_names is None else tuple(r.subscribed_topic_names)
        fields = (client_id, r.group_id, r.member_id, r.member_epoch, r.rack_id, names)
    client_id, group_id, member_id, epoch, rack_id, names = fields
    return ShareHeartbeat(group_id, member_id, epoch, rack_id, names, client_id or "", "/" + call.client.host)


def _not_a_share_group(group_id: str) -> bytes:
    return _error(Code.GROUP_ID_NOT_FOUND, fitting(f"Group {group_id} is not a share group."))


def _error(code: Code, message: str | None = None, text: bool = True) -> bytes:
    """Returns an error response. `text`: it has Kafka's default message if there is no `message`."""
    error_message = message or (TEXT.get(code) if text else None)
    return sh.ShareGroupHeartbeatResponse(error_code=code, error_message=error_message).encode(STABLE_SINCE)
