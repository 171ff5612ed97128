"""LeaveGroup (api 13), and members whose session ends. Rows 1.17 and 1.18 of docs/reference/behaviour.md."""

from __future__ import annotations

from sidecar.core.classic.events import LeaveGroup, LeaveReply, Leaving, Left
from sidecar.core.classic.group import ClassicGroup, classic_group
from sidecar.core.classic.rebalance import complete_if_all_joined, forget, prepare
from sidecar.core.classic.records import State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason, listed


def leave(turn: Turn, e: LeaveGroup, token: int) -> None:
    """Removes these members: one answer for each, one rebalance for all of them."""
    if not e.group_id:
        raise CoordinatorError(Code.INVALID_GROUP_ID, "The group id is empty.")
    group = classic_group(turn.groups, e.group_id)
    if group is None:
        turn.reply(token, e.unknown())
        return
    left = tuple(Left(m.member_id, m.instance_id, _leave(turn, group, m)) for m in e.members)
    gone = [m.member_id or m.instance_id or "" for m in left if m.code == Code.NONE]
    if gone:
        why = f"{listed(gone)} left"
        if group.state in (State.STABLE, State.COMPLETING):
            prepare(turn, group, why, Reason.LEFT)
        else:
            complete_if_all_joined(turn, group)
    turn.reply(token, LeaveReply(members=left))


def _leave(turn: Turn, group: ClassicGroup, m: Leaving) -> Code:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    member_id, why = m.member_id, f"left: {m.reason or 'not provided'}"
    if not member_id:  # an administrator names the instance id alone
        member_id = "" if m.instance_id is None else group.static.get(m.instance_id, "")
        if not member_id:
            return Code.UNKNOWN_MEMBER_ID
    elif member_id not in soft.pending:
        try:
            group.validate(member_id, m.instance_id)
        except CoordinatorError as refused:
            return refused.code
    forget(turn, group, member_id, why)
    return Code.NONE


def session_over(turn: Turn, group: ClassicGroup, key: tuple[str, ...], tag: int) -> None:
    """Removes a member, or a member id that was given out, at the end of its session. A member that waits for an answer
    is alive and stays, unless it is new: its client knows no id yet, and may have come again under another one."""
    member_id = key[2]
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if member_id not in soft.new and (member_id in soft.joins or member_id in soft.syncs):
        return
    pending = member_id in soft.pending
    if forget(turn, group, member_id, "session timeout") is None and not pending:
        return
    if group.state is State.PREPARING:
        complete_if_all_joined(turn, group, even_initial=True)
    elif not pending:
        prepare(turn, group, f"{member_id}: session timeout", Reason.SESSION)
