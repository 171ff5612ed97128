"""Checks whether a member of a classic group may commit or fetch offsets. Rows 1.31 and 1.33 of
docs/reference/behaviour.md (Kafka's ClassicGroup.validateOffsetCommit)."""

from __future__ import annotations

from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.rebalance import arm_session
from sidecar.core.classic.records import State
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def check_commit(turn: Turn, c: CommitCheck, token: int) -> None:
    group = turn.groups[c.group_id]
    code = _commit(group, c)
    if code == Code.NONE and c.member_epoch >= 0 and not c.transactional:
        arm_session(turn, group, c.member_id)  # the commit shows that the member is alive
    turn.reply(token, CheckReply(code))


def _commit(group: ClassicGroup, c: CommitCheck) -> Code:
    if c.member_epoch < 0 and group.state is State.EMPTY:
        return Code.NONE
    if c.member_epoch >= 0 or c.member_id or c.instance_id is not None:
        try:
            group.validate(c.member_id, c.instance_id)
        except CoordinatorError as refused:
            return refused.code
        if not group.in_generation(c.member_epoch):
            return Code.ILLEGAL_GENERATION
    elif not c.transactional and group.state is not State.EMPTY:
        return Code.UNKNOWN_MEMBER_ID
    if not c.transactional and group.state is State.COMPLETING:
        return Code.REBALANCE_IN_PROGRESS
    return Code.NONE


def check_fetch(turn: Turn, f: FetchCheck, token: int) -> None:
    """Allows every fetch of a classic group's offsets."""
    turn.reply(token, CheckReply())
