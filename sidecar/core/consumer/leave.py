"""A member leaves: for good, or as a static member for a while (KIP-848 'Static membership')."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup, Member, consumer_group
from sidecar.core.consumer.members import current_record, remove_member
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.sessions import REBALANCE
from sidecar.core.modern.validation import held_by_instance, unknown_member
from sidecar.core.runtime.turn import Turn


def leaving(turn: Turn, hb: ConsumerHeartbeat) -> tuple[ConsumerGroup, Member]:
    """Returns the group, and the member that leaves. Raises the error with which the request is refused."""
    group = consumer_group(turn.groups, hb.group_id)
    if group is None:
        raise unknown_member(hb.member_id, hb.group_id)
    if hb.instance_id is not None:
        return group, held_by_instance(group, hb.instance_id, hb.member_id)
    member = group.members.get(hb.member_id)
    if member is None:
        raise unknown_member(hb.member_id, hb.group_id)
    return group, member


def leave(turn: Turn, hb: ConsumerHeartbeat, token: int) -> None:
    group, member = leaving(turn, hb)
    if hb.member_epoch == STATIC_LEAVE_EPOCH:
        # Kept until its session times out, no new epoch: its return is expected (KIP-848 'Static membership').
        zeroed = {t: dict.fromkeys(ps, 0) for t, ps in member.assigned.items()}
        away = replace(member, member_epoch=STATIC_LEAVE_EPOCH, assigned=zeroed, pending={})
        turn.write(current_record(turn, group.group_id, away, "static member left for a while"))
        turn.timers.cancel((REBALANCE, group.group_id, member.member_id))
    else:
        remove_member(turn, group, member, "left")
    turn.reply(token, HeartbeatReply(member_id=hb.member_id, member_epoch=hb.member_epoch))
