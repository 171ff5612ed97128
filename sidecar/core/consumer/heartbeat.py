"""ConsumerGroupHeartbeat (api 68): one request in, its answer now or later.

Source: KIP-848 'ConsumerGroupHeartbeat API'. The order of steps is that of Kafka's GroupMetadataManager (step.py).
"""

from __future__ import annotations

from sidecar.core.consumer.adoption import RELEASE
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.leave import leave
from sidecar.core.consumer.parked_joins import PARKED
from sidecar.core.consumer.regexes import ResolveRegex
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.step import step
from sidecar.core.consumer.validation import check_request
from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from sidecar.core.modern.parked_joins import waits
from sidecar.core.runtime.effects import Grant
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn


def heartbeat(turn: Turn, hb: ConsumerHeartbeat, token: int, has_room: bool = False) -> None:
    """Handles ConsumerGroupHeartbeat. `has_room`: an upgrade has checked the memory limits, and has written since."""
    config = config_of(turn, hb.group_id)
    check_request(hb, config)
    if hb.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        leave(turn, hb, token)
        return
    if RELEASE.sent_away(turn, hb, token):
        return
    if look_first(turn, hb, token, _new_topic_names(turn, hb), config.join_wait_ms):
        return
    fx = turn.fx
    may_wait = hb.member_epoch > 0 and config.join_wait_ms > 0
    reply = step(turn, hb, token, config, may_wait=may_wait, has_room=has_room)
    soft: ConsumerSoft = turn.soft_of(hb.group_id)
    asks = any(type(item) is ResolveRegex for item in fx.background)
    if waits(turn, hb, soft, config, asks):
        PARKED.wait(turn, hb, token, reply, asks)
    elif fx.records or fx.background or hb.member_epoch <= 0 or _must_not_repeat(hb, reply, soft):
        turn.reply(token, reply)
    else:
        until_ms = turn.now.mono_ms + config.session_timeout_ms
        turn.reply(token, reply, Grant(hb.group_id, hb.member_id, soft.revision, until_ms))


def _new_topic_names(turn: Turn, hb: ConsumerHeartbeat) -> tuple[str, ...]:
    """Returns the topics that this member has not named before: in a join, all of them."""
    if not hb.topic_names or hb.member_epoch == 0:
        return hb.topic_names or ()
    group = turn.groups.get(hb.group_id)
    member = group.members.get(hb.member_id) if type(group) is ConsumerGroup else None
    return () if member is None else tuple(set(hb.topic_names).difference(member.topic_names))


def _must_not_repeat(hb: ConsumerHeartbeat, reply: HeartbeatReply, soft: ConsumerSoft) -> bool:
    """Whether this answer carries an assignment, or a later one may have to: a front would repeat this answer under a
    grant."""
    return reply.assignment is not None or hb.member_id in soft.unacknowledged
