"""Checks of a commit or a fetch that all kinds of groups with epochs share (Kafka's validateOffsetCommit and
validateOffsetFetch)."""

from __future__ import annotations

from typing import Any

from sidecar.core.modern.group import ModernGroup
from sidecar.core.runtime.offset_checks import TXN_OF_CONSUMERS, CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code

OK = CheckReply()


def needs_no_member(group: ModernGroup[Any], c: CommitCheck) -> bool:
    if c.member_epoch < 0 and not group.members:
        return True
    return c.transactional and c.member_epoch == -1 and not c.member_id and c.instance_id is None


def stale_code(c: CommitCheck, classic: bool = False) -> Code:
    """Returns the error for an epoch that may not commit. `classic`: the member speaks the classic protocol."""
    as_classic = classic or (c.transactional and c.version < TXN_OF_CONSUMERS)
    return Code.ILLEGAL_GENERATION if as_classic else Code.STALE_MEMBER_EPOCH


def check_fetch(turn: Turn, f: FetchCheck, token: int) -> None:
    turn.reply(token, _fetch(turn.groups[f.group_id], f))


def _fetch(group: ModernGroup[Any], f: FetchCheck) -> CheckReply:
    if f.member_id is None and f.member_epoch < 0:
        return OK
    member = group.members.get(f.member_id or "")
    if member is None:
        return CheckReply(Code.UNKNOWN_MEMBER_ID)
    return OK if f.member_epoch == member.member_epoch else CheckReply(Code.STALE_MEMBER_EPOCH)
