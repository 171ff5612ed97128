"""A member leaves: for good, or as a static member for a while (KIP-1071 'Static membership')."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.sessions import REBALANCE
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.events import StreamsHeartbeat, StreamsHeartbeatReply
from sidecar.core.streams.group import Member, StreamsGroup, streams_group
from sidecar.core.streams.members import current_record, remove_members
from sidecar.core.streams.step import request_shutdown
from sidecar.core.streams.tasks import NOTHING_ASSIGNED
from sidecar.core.streams.validation import existing, existing_member


def leave(turn: Turn, hb: StreamsHeartbeat, token: int) -> None:
    group = existing(streams_group(turn.groups, hb.group_id), hb.group_id)
    member = existing_member(group, hb)
    if hb.shutdown_application:
        request_shutdown(turn, group, hb.member_id)
    if hb.member_epoch == STATIC_LEAVE_EPOCH:
        _leave_for_a_while(turn, group, member)
    else:
        remove_members(turn, group, [(member, "left")])
    turn.reply(token, StreamsHeartbeatReply(member_id=hb.member_id, member_epoch=hb.member_epoch))


def _leave_for_a_while(turn: Turn, group: StreamsGroup, member: Member) -> None:
    """Marks a static member as away. It stays until its session times out, and the epoch stays: its return is
    expected."""
    away = replace(
        member, member_epoch=STATIC_LEAVE_EPOCH, assigned=member.assigned.at_epoch(0), pending=NOTHING_ASSIGNED
    )
    turn.write(current_record(group.group_id, away, "static member left for a while"))
    turn.timers.cancel((REBALANCE, group.group_id, member.member_id))
