"""SyncGroup (api 14) and Heartbeat (api 12). Rows 1.14 to 1.16 of docs/reference/behaviour.md."""

from __future__ import annotations

from sidecar.core.classic.embedded import LAST_GENERATION
from sidecar.core.classic.events import ClassicHeartbeat, SyncGroup, SyncReply
from sidecar.core.classic.group import ClassicGroup, classic_group
from sidecar.core.classic.rebalance import arm_session, go, go_on_releasing, has_synced, stabilize, synced
from sidecar.core.classic.records import State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.runtime.effects import Grant
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.member_limits import check_assignments
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def sync(turn: Turn, e: SyncGroup, token: int) -> None:
    group = _member_of(turn, e)
    if not group.in_generation(e.generation):
        raise CoordinatorError(Code.ILLEGAL_GENERATION, f"The group is in generation {group.generation}.")
    joining = group.state is State.PREPARING
    # Before a downgrade each member received the first of its own protocols, so this one is no error of the member.
    # Kafka refuses it, which ends Java's clients (docs/reference/differences.md).
    own_protocol = joining and any(name == e.protocol for name, _ in group.members[e.member_id].protocols)
    if _other(e.protocol_type, group.type) or (_other(e.protocol, group.protocol) and not own_protocol):
        raise CoordinatorError(Code.INCONSISTENT_GROUP_PROTOCOL, f"The group uses {group.type}, {group.protocol}.")
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if joining:
        raise CoordinatorError(Code.REBALANCE_IN_PROGRESS, "Members are joining.")
    assigns = group.state is State.COMPLETING and group.leader == e.member_id
    given = {m: a for m, a in e.assignments if m in group.members} if assigns else {}
    check_assignments(turn.ports.limits, group.held_bytes, group.assignments, given)
    has_synced(turn, group, e.member_id)
    if group.state is State.STABLE:
        # The answer to the JoinGroup may have waited long for its records, and the session began with the request.
        arm_session(turn, group, e.member_id)
        turn.prove(group.group_id)  # the member may have given these partitions up at another owner
        turn.reply(token, synced(group, e.member_id))
        go_on_releasing(turn, group)
        return
    older = soft.syncs.pop(e.member_id, None)
    if older is not None:
        turn.reply(older, SyncReply(Code.REBALANCE_IN_PROGRESS))
    soft.syncs[e.member_id] = token
    if assigns:
        stabilize(turn, group, given)


def _other(sent: str | None, known: str | None) -> bool:
    """Whether a client sends another value than the group's. Older clients send none."""
    return sent is not None and sent != known


def heartbeat(turn: Turn, e: ClassicHeartbeat, token: int) -> None:
    group = _member_of(turn, e)
    if not group.in_generation(e.generation):
        raise CoordinatorError(Code.ILLEGAL_GENERATION, f"The group is in generation {group.generation}.")
    arm_session(turn, group, e.member_id)
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.PREPARING:
        if group.adopted and group.generation < e.generation < LAST_GENERATION:
            why = f"{e.member_id} is in generation {e.generation}"
            go(turn, group, group.state, why, generation=e.generation)
        turn.reply(token, Answer(Code.REBALANCE_IN_PROGRESS))
        return
    until_ms = turn.now.mono_ms + group.members[e.member_id].session_timeout_ms
    turn.reply(token, Answer(), Grant(group.group_id, e.member_id, soft.revision, until_ms))


def _member_of(turn: Turn, e: SyncGroup | ClassicHeartbeat) -> ClassicGroup:
    if not e.group_id:
        raise CoordinatorError(Code.INVALID_GROUP_ID, "The group id is empty.")
    group = classic_group(turn.groups, e.group_id)
    if group is None or group.state is State.EMPTY:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Group {e.group_id} has no members.")
    group.validate(e.member_id, e.instance_id)
    return group
