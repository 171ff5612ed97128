"""Timers that remove a member which is silent, or does not give up its revoked partitions. Their names are the same in
every kind of group with epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sidecar.core.modern.group import ModernGroup, RevokingMember
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.registry import TimerHandler
from sidecar.core.runtime.turn import Turn

SESSION, REBALANCE = "session", "rebalance"
REMOVING = frozenset((SESSION, REBALANCE))
Remove = Callable[[Turn, Any, Sequence[tuple[Any, str]]], None]
"""(turn, group, members with the reason of each): removes members from a group of one kind."""


def arm_session(turn: Turn, group_id: str, member_id: str, timeout_ms: int) -> int:
    """Arms the member's session timer, and returns its deadline."""
    return turn.arm_removal((SESSION, group_id, member_id), timeout_ms)


def arm_rebalance(turn: Turn, group_id: str, member: RevokingMember) -> None:
    """Arms the rebalance timer of a member that must revoke, and disarms it in any other state."""
    key = (REBALANCE, group_id, member.member_id)
    if member.revokes:
        turn.arm_removal(key, member.rebalance_timeout_ms, member.member_epoch)
    else:
        turn.timers.cancel(key)


def forget(turn: Turn, group_id: str, member_id: str, successor: str | None = None) -> None:
    """Drops the timers and the soft state of a member that is gone, or whose place `successor` has. The run under way
    assigns nothing to it."""
    turn.timers.cancel((SESSION, group_id, member_id))
    turn.timers.cancel((REBALANCE, group_id, member_id))
    soft: ModernSoft = turn.soft_of(group_id)
    soft.unacknowledged.pop(member_id, None)
    if soft.flight is not None:
        soft.flight.gone(member_id, successor)


def removing_timers(remove: Remove) -> dict[str, TimerHandler]:
    """Returns the rows that a kind's registration.py adds to its timers. `remove` is `remove_members` of its
    members.py; for consumer groups `remove` of migration/leave.py, as the group may become a classic one."""

    def session(turn: Turn, group: Any, key: tuple[str, ...], tag: int) -> None:
        member = group.members.get(key[2])
        if member is not None:
            remove(turn, group, [(member, "session timeout")])

    def rebalance(turn: Turn, group: Any, key: tuple[str, ...], epoch: int) -> None:
        member = _late(group, key[2], epoch)
        if member is not None:
            remove(turn, group, [(member, f"rebalance timeout in epoch {epoch}")])

    return {SESSION: session, REBALANCE: rebalance}


def _late(group: ModernGroup[RevokingMember], member_id: str, epoch: int) -> RevokingMember | None:
    """Returns the member if it did not revoke within its rebalance timeout. `epoch`: in which it had to."""
    member = group.members.get(member_id)
    late = member is not None and member.member_epoch == epoch and member.revokes
    return member if late else None
