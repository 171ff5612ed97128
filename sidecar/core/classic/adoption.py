"""Adoption and release of a classic group, and its rebalance on an administrator's order.

**Adoption**: the group comes as the broker described it, with its members' metadata and assignments, but without their
generation. So the group prepares a rebalance. Until its end any generation counts that is not lower than one that a
member has named. A heartbeat is answered REBALANCE_IN_PROGRESS, and a commit of a member that has not joined again is
let pass, as in any rebalance.

**Release**: one or more rebalances assign nothing to any member (rebalance.py), until no member claims to own anything.
Then every waiting JoinGroup is answered NOT_COORDINATOR: the members look for their coordinator anew.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.classic.group import ClassicGroup, classic_group
from sidecar.core.classic.rebalance import SESSION, arm_session, await_join, complete_if_all_joined, prepare
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, MemberRecord, State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.classic.stale_claims import newest_claim
from sidecar.core.runtime.events import Answer, Event, Rebalance, ReleaseGroup, ReleaseReply
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason


class NativeMember(Struct, gc=False):
    """A member in the broker's DescribeGroups response."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class AdoptClassic(Event):
    """Takes in this stable group of the broker. The broker does not describe its members' timeouts: these count until
    they join."""

    inner: ClassVar[bool] = True

    protocol_type: str
    protocol: str
    members: tuple[NativeMember, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    why: str


def adopt(turn: Turn, e: AdoptClassic, token: int) -> None:
    if e.group_id in turn.groups:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {e.group_id} is here already.")
    for m in e.members:
        timeouts = (e.session_timeout_ms, e.rebalance_timeout_ms)
        protocols = ((e.protocol, m.metadata),)
        identity = (m.member_id, m.instance_id, m.client_id, m.client_host)
        turn.write(MemberRecord(e.group_id, *identity, *timeouts, protocols, why=e.why))
        turn.write(AssignmentRecord(e.group_id, m.member_id, 0, m.assignment, e.why))
    group: ClassicGroup = turn.groups[e.group_id]
    known = max(newest_claim(group), 0)
    began = (State.PREPARING, known, e.protocol_type, e.protocol, None, -1, turn.now.wall_ms)
    turn.write(GroupRecord(e.group_id, *began, e.why, adopted=True))
    for m in e.members:
        arm_session(turn, group, m.member_id)
    await_join(turn, group)
    soft: ClassicSoft = turn.soft_of(e.group_id)
    soft.rebalances(turn.now.mono_ms)
    turn.fx.count("rebalances", group.kind, Reason.MOVED)
    turn.fx.log("group taken over from the broker", group_id=e.group_id, kind=group.kind, members=len(e.members))
    turn.reply(token, Answer())


def rebalance(turn: Turn, e: Rebalance, token: int) -> None:
    group = _there(turn, e)
    if group.state in (State.STABLE, State.COMPLETING):
        prepare(turn, group, e.why, Reason.OPERATOR)
    turn.reply(token, Answer())


def release(turn: Turn, e: ReleaseGroup, token: int) -> None:
    group = _there(turn, e)
    soft: ClassicSoft = turn.soft_of(group.group_id)
    begins, ends = not e.stop and not soft.releasing, e.stop and soft.releasing
    if begins:
        soft.releasing, soft.rounds = True, 0
        for member_id in soft.pending:
            turn.timers.cancel((SESSION, group.group_id, member_id))
        soft.pending.clear()
    elif ends:
        soft.releasing = False
    if (begins or ends) and group.state in (State.STABLE, State.COMPLETING):
        prepare(turn, group, e.why, Reason.MOVED)
    elif begins:
        complete_if_all_joined(turn, group, even_initial=True)
    turn.reply(token, ReleaseReply(members=len(group.members)))


def _there(turn: Turn, e: Event) -> ClassicGroup:
    group = classic_group(turn.groups, e.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {e.group_id} not found.")
    return group
