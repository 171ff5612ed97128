"""Checks whether a member may commit or fetch offsets. Each kind of group answers for its own groups; here are the
events, and the answers for a group that does not exist. The offsets themselves stay in the broker's __consumer_offsets.

Rows 1.31 to 1.33 and 2.26 of docs/reference/behaviour.md (Kafka's OffsetMetadataManager).
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code

Place = tuple[str, bytes, int]
"""Topic name or "", topic id or zeros, partition."""


TXN_OF_CONSUMERS = 6
"""The first version of TxnOffsetCommit with the error codes of KIP-848 (KIP-1319)."""


class MemberIdentity(Struct, frozen=True, gc=False):
    """Identity of the placeholder member in the broker's group of the same name
    (coordinator/placeholder/placeholders.py)."""

    member_id: str
    generation: int
    instance_id: str


class CheckReply(Answer):
    """`identity`: the placeholder member in whose name the commit goes on to the broker; None while the group has no
    members. `ticket`: by which the front reports the end of the commit, 0 if no report is needed. The core's driver
    fills in both.

    A commit is accepted or refused as a whole, as at Kafka, where one partition's refusal ends the request."""

    identity: MemberIdentity | None = None
    ticket: int = 0


class CommitCheck(Event):
    """Asks whether this member may commit (OffsetCommit, TxnOffsetCommit; KIP-848 'Offset commit', KIP-1251).
    `member_epoch`: the generation of a classic member. `again`: a second check, because the broker does not know the
    member `sent_as` in whose name the commit went on."""

    answer: ClassVar[type[Answer]] = CheckReply

    member_id: str
    member_epoch: int
    instance_id: str | None
    version: int
    transactional: bool
    partitions: tuple[Place, ...]
    again: bool = False
    sent_as: MemberIdentity | None = None
    connection: int = 0
    """Number of the front's connection that the commit came over; it keeps the order of a member's commits."""
    asked_ms: int = 0
    """Arrival at the coordinator, which fills it in; monotonic milliseconds."""


class FetchCheck(Event):
    """Asks whether this member may fetch offsets (OffsetFetch v9 and newer)."""

    answer: ClassVar[type[Answer]] = CheckReply

    member_id: str | None
    member_epoch: int
    asked_ms: int = 0
    """Arrival at the coordinator, as in `CommitCheck`."""


def check_commit_without_group(turn: Turn, c: CommitCheck, token: int) -> None:
    """Answers a commit to a group that does not exist. A consumer without membership may commit all the same."""
    if c.member_epoch < 0:
        code = Code.NONE
    elif c.transactional and c.version >= TXN_OF_CONSUMERS:
        code = Code.GROUP_ID_NOT_FOUND
    elif c.version >= 9 and not c.transactional:
        code = Code.UNKNOWN_MEMBER_ID
    else:
        code = Code.ILLEGAL_GENERATION
    turn.reply(token, CheckReply(code))


def check_fetch_without_group(turn: Turn, f: FetchCheck, token: int) -> None:
    """Allows the fetch: the group does not exist here, so all offsets that the broker has may be read."""
    turn.reply(token, CheckReply())
