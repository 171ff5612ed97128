"""Timers of members of the classic protocol in a consumer group: the deadlines to join again and to sync, and the wait
of a JoinGroup for an assignor."""

from __future__ import annotations

from sidecar.core.consumer.group import Member
from sidecar.core.runtime.turn import Turn

JOIN, SYNC, WAIT = "mixed_join", "mixed_sync", "mixed_wait"


def arm_join(turn: Turn, group_id: str, member: Member) -> None:
    """Arms the deadline of a member that must join again. The time runs from the first answer that demands it."""
    key = (JOIN, group_id, member.member_id)
    if turn.timers.deadline(key) is None:
        turn.arm_removal(key, member.rebalance_timeout_ms)


def arm_sync(turn: Turn, group_id: str, member: Member) -> None:
    turn.arm_removal((SYNC, group_id, member.member_id), member.rebalance_timeout_ms)


def joined(turn: Turn, group_id: str, member_id: str) -> None:
    turn.timers.cancel((JOIN, group_id, member_id))


def synced(turn: Turn, group_id: str, member_id: str) -> None:
    turn.timers.cancel((SYNC, group_id, member_id))
