"""Offset checks of a share group, whose members have no offsets: acknowledged records are share state, which the broker
keeps."""

from __future__ import annotations

from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code


def check_commit(turn: Turn, c: CommitCheck, token: int) -> None:
    turn.reply(token, CheckReply(Code.GROUP_ID_NOT_FOUND))


def check_fetch(turn: Turn, f: FetchCheck, token: int) -> None:
    """Allows the fetch: the broker has no offsets to return."""
    turn.reply(token, CheckReply())
