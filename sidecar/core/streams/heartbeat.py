"""StreamsGroupHeartbeat (api 88): one request in, its answer now or later.

Source: KIP-1071; the order of steps is that of Kafka's GroupMetadataManager (step.py).
"""

from __future__ import annotations

from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from sidecar.core.modern.parked_joins import waits
from sidecar.core.runtime.effects import Grant
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.adoption import RELEASE
from sidecar.core.streams.config import config_of
from sidecar.core.streams.events import StreamsHeartbeat, StreamsHeartbeatReply
from sidecar.core.streams.leave import leave
from sidecar.core.streams.parked_joins import PARKED
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.step import step
from sidecar.core.streams.validation import check_request


def heartbeat(turn: Turn, hb: StreamsHeartbeat, token: int) -> None:
    check_request(hb)
    if hb.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        leave(turn, hb, token)
        return
    if RELEASE.sent_away(turn, hb, token):
        return
    config = config_of(turn, hb.group_id)
    if look_first(turn, hb, token, source_topics(hb), config.join_wait_ms):
        return
    fx = turn.fx
    reply = step(turn, hb, config, may_wait=hb.member_epoch > 0 and config.join_wait_ms > 0)
    soft: StreamsSoft = turn.soft_of(hb.group_id)
    if waits(turn, hb, soft, config, asks=False):
        PARKED.wait(turn, hb, token, reply, asks=False)
    elif fx.records or fx.background or hb.member_epoch == 0 or _must_not_repeat(hb, reply, soft):
        turn.reply(token, reply)
    else:
        until_ms = turn.now.mono_ms + config.session_timeout_ms
        turn.reply(token, reply, Grant(hb.group_id, hb.member_id, soft.revision, until_ms))


def source_topics(hb: StreamsHeartbeat) -> tuple[str, ...]:
    """Returns the source topics that the heartbeat names. Internal topics are not looked up: the member that misses
    them creates them."""
    return () if hb.topology is None else tuple(t for s in hb.topology.subtopologies for t in s.source_topics)


def _must_not_repeat(hb: StreamsHeartbeat, reply: StreamsHeartbeatReply, soft: StreamsSoft) -> bool:
    """Whether the next answer may differ from this one without a write. Statuses end by time."""
    assigns = reply.active_tasks is not None or reply.partitions_by_endpoint is not None or bool(reply.create)
    return assigns or bool(reply.status) or hb.member_id in soft.unacknowledged or hb.shutdown_application
