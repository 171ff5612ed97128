"""ShareGroupHeartbeat (api 76): one request in, its answer now or later.

Source: KIP-932; the order of steps is that of Kafka's GroupMetadataManager (step.py).
"""

from __future__ import annotations

from sidecar.core.modern.group import LEAVE_EPOCH
from sidecar.core.modern.parked_joins import waits
from sidecar.core.runtime.effects import Grant
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.adoption import RELEASE
from sidecar.core.share.config import config_of
from sidecar.core.share.events import ShareHeartbeat
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.leave import leave
from sidecar.core.share.parked_joins import PARKED
from sidecar.core.share.soft_state import ShareSoft
from sidecar.core.share.step import step
from sidecar.core.share.validation import check_request


def heartbeat(turn: Turn, hb: ShareHeartbeat, token: int) -> None:
    check_request(hb)
    if hb.member_epoch == LEAVE_EPOCH:
        leave(turn, hb, token)
        return
    if RELEASE.sent_away(turn, hb, token):
        return
    config = config_of(turn, hb.group_id)
    if look_first(turn, hb, token, _new_topic_names(turn, hb), config.join_wait_ms):
        return
    fx = turn.fx
    reply = step(turn, hb, config, may_wait=hb.member_epoch > 0 and config.join_wait_ms > 0)
    soft: ShareSoft = turn.soft_of(hb.group_id)
    if waits(turn, hb, soft, config, asks=False):
        PARKED.wait(turn, hb, token, reply, asks=False)
    elif fx.records or fx.background or hb.member_epoch == 0 or reply.assignment is not None:
        turn.reply(token, reply)
    else:
        until_ms = turn.now.mono_ms + config.session_timeout_ms
        turn.reply(token, reply, Grant(hb.group_id, hb.member_id, soft.revision, until_ms))


def _new_topic_names(turn: Turn, hb: ShareHeartbeat) -> tuple[str, ...]:
    """Returns the topics that this member has not named before: in a join, all of them."""
    if not hb.topic_names or hb.member_epoch == 0:
        return hb.topic_names or ()
    group = turn.groups.get(hb.group_id)
    member = group.members.get(hb.member_id) if type(group) is ShareGroup else None
    return () if member is None else tuple(set(hb.topic_names).difference(member.topic_names))
