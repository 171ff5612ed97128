"""JoinGroup (api 11): a member joins, or joins again; its answer waits for the end of the join phase.

Source: Kafka's GroupMetadataManager (classicGroupJoin...), KIP-394 (member ids), KIP-345 (static members), KIP-814
(skipping the assignment). Rows 1.3 to 1.13 and 1.19 to 1.24 of docs/reference/behaviour.md.
"""

from __future__ import annotations

from msgspec.structs import replace

from sidecar.core.classic.config import ClassicConfig, config_of
from sidecar.core.classic.events import JoinGroup, JoinReply, SyncReply
from sidecar.core.classic.group import ClassicGroup, Member, classic_group
from sidecar.core.classic.rebalance import (
    SESSION,
    arm_session,
    complete_if_all_joined,
    forget,
    go,
    joined,
    leaders_view,
    prepare,
    rebalance_or_complete,
)
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, Kind, MemberRecord, State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.runtime.member_limits import (
    bytes_of_member,
    bytes_of_protocols,
    check_protocols,
    check_room,
    new_member_id,
)
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason

MEMBER_ID_REQUIRED_SINCE, SKIP_ASSIGNMENT_SINCE = 4, 9
"""Versions of JoinGroup with which these behaviours begin."""


def check(turn: Turn, e: JoinGroup, config: ClassicConfig) -> None:
    """Refuses a request that is wrong for any group."""
    if not e.group_id:
        raise CoordinatorError(Code.INVALID_GROUP_ID, "The group id is empty.")
    if not config.min_session_timeout_ms <= e.session_timeout_ms <= config.max_session_timeout_ms:
        raise CoordinatorError(Code.INVALID_SESSION_TIMEOUT, "The session timeout is out of range.")
    check_protocols(turn.ports.limits, e.protocols)


def join(turn: Turn, e: JoinGroup, token: int) -> None:
    config = config_of(turn, e.group_id)
    check(turn, e, config)
    group = classic_group(turn.groups, e.group_id)
    if group is None and e.group_id in turn.groups:
        turn.reply(token, JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL))
        return
    if group is None and e.member_id:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Group {e.group_id} not found.")
    checked = group or ClassicGroup(e.group_id)
    if group is not None and not _has_room(turn, group, e.member_id, config):
        _turn_away(turn, group, e, token)
    elif not checked.supports(e.protocol_type, e.protocols):
        turn.reply(token, JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL, member_id=e.member_id))
    elif not fits(turn, checked, e, token):
        return
    elif not e.member_id:
        _new(turn, group or _create(turn, e), e, token, config)
    else:
        _rejoin(turn, checked, e, token, config)


def _create(turn: Turn, e: JoinGroup) -> ClassicGroup:
    turn.write(GroupRecord(e.group_id, State.EMPTY, 0, None, None, None, -1, turn.now.wall_ms, "the first member"))
    made = turn.groups[e.group_id]
    assert isinstance(made, ClassicGroup)
    return made


def _has_room(turn: Turn, group: ClassicGroup, member_id: str, config: ClassicConfig) -> bool:
    """Whether the group has room for this member. During a join phase only members that have joined count: if the limit
    shrank, the last ones to join are refused."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING:
        return member_id in soft.joins or len(soft.joins) < config.max_size
    return member_id in group.members or len(group.members) < config.max_size


def fits(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int) -> bool:
    """Whether the member's metadata fits into memory. Refuses the request if not."""
    held = group.members.get(group.static.get(e.instance_id or "", e.member_id))
    member_id = e.instance_id or e.client_id  # the member id will begin with it
    more = bytes_of_member(member_id, e.instance_id, e.client_id, e.client_host) + bytes_of_protocols(e.protocols)
    if held is not None:
        more = bytes_of_protocols(e.protocols) - bytes_of_protocols(held.protocols)
    try:
        check_room(turn.ports.limits, group.held_bytes, more)
    except CoordinatorError as full:
        turn.fx.count("members_refused", full.limit)
        turn.reply(token, JoinReply(full.code, member_id=e.member_id))
        return False
    return True


def _turn_away(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int) -> None:
    if e.member_id:
        forget(turn, group, e.member_id, "the group is full")
    turn.fx.count("members_refused", "size")
    turn.reply(token, JoinReply(Code.GROUP_MAX_SIZE_REACHED))


# ---- new members --------------------------------------------------------------------------------------------------
def _new(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int, config: ClassicConfig) -> None:
    if e.instance_id is not None:
        member_id = f"{e.instance_id}-{e.new_id}"
        holder = group.static.get(e.instance_id)
        if holder is None:
            _add(turn, group, e, token, member_id, config)
        else:
            _replace(turn, group, e, token, holder, member_id)
        return
    member_id = new_member_id(e.client_id, e.new_id)
    if e.version < MEMBER_ID_REQUIRED_SINCE:
        _add(turn, group, e, token, member_id, config)
        return
    soft: ClassicSoft = turn.soft_of(group.group_id)
    soft.pending.add(member_id)
    turn.timers.set((SESSION, group.group_id, member_id), turn.now.mono_ms + e.session_timeout_ms)
    turn.reply(token, JoinReply(Code.MEMBER_ID_REQUIRED, member_id=member_id))
    for older in turn.pending.add((group.group_id, member_id), e.connection, turn.ports.limits):
        _take_back(turn, *older)


def _take_back(turn: Turn, group_id: str, member_id: str) -> None:
    """Removes a pending member id, the oldest, if its client has not come back. That client would receive
    UNKNOWN_MEMBER_ID and ask for a new id."""
    group = classic_group(turn.groups, group_id)
    if group is None or member_id not in turn.soft_of(group_id).pending:
        return
    turn.fx.count("members_refused", "pending")
    forget(turn, group, member_id, "too many member ids are pending")
    if group.state is State.PREPARING:
        complete_if_all_joined(turn, group)


def _add(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int, member_id: str, config: ClassicConfig) -> None:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.PREPARING and soft.initial:
        soft.grew = True
    why = f"{member_id} joined: {e.reason or 'not provided'}"
    if not group.members and group.type != e.protocol_type:
        go(turn, group, group.state, why, protocol_type=e.protocol_type)
    turn.write(_record(e, member_id, bool(e.member_id or e.instance_id), group.generation, why))
    soft.pending.discard(member_id)
    turn.pending.drop((group.group_id, member_id))
    soft.new.add(member_id)
    soft.joins[member_id] = token
    # A new member does not know its id and cannot send heartbeats. A client that gave up comes again as another
    # member: the old one must not stay for ever.
    turn.timers.set((SESSION, group.group_id, member_id), turn.now.mono_ms + config.new_member_join_timeout_ms)
    turn.fx.log("member joined", group_id=group.group_id, member_id=member_id, client=e.client_id)
    rebalance_or_complete(turn, group, why, Reason.JOINED)


def _record(e: JoinGroup, member_id: str, id_told: bool, generation: int, why: str) -> MemberRecord:
    return MemberRecord(
        e.group_id,
        member_id,
        e.instance_id,
        e.client_id,
        e.client_host,
        e.session_timeout_ms,
        e.rebalance_timeout_ms,
        e.protocols,
        id_told,
        generation,
        why=why,
    )


# ---- members that come again --------------------------------------------------------------------------------------
def _rejoin(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int, config: ClassicConfig) -> None:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if e.member_id in soft.pending:
        if e.instance_id is not None:
            raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, "A member id that was given out belongs to no instance id.")
        _add(turn, group, e, token, e.member_id, config)
        return
    member = group.validate(e.member_id, e.instance_id)
    same = e.protocols == member.protocols
    leads = group.leader == e.member_id
    if group.state is State.COMPLETING and same:
        # It may have missed the answer to its first request.
        turn.reply(token, joined(group, e.member_id, leaders_view(turn, group) if leads else ()))
    elif group.state is State.STABLE and same and not leads:
        turn.reply(token, joined(group, e.member_id))
    elif group.state is State.EMPTY:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, "The group is empty.")
    else:
        name = "the leader" if leads else e.member_id
        action = "joins again" if same else "changed what it says"
        why = f"{name} {action}: {e.reason or 'not provided'}"
        _update(turn, group, member, e, token, why)
        rebalance_or_complete(turn, group, why, Reason.REJOINED if same else Reason.SUBSCRIPTION)


def _update(turn: Turn, group: ClassicGroup, member: Member, e: JoinGroup, token: int, why: str) -> None:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    requested = (e.protocols, e.session_timeout_ms, e.rebalance_timeout_ms)
    if requested != (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms):
        turn.write(
            MemberRecord(
                member.group_id,
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                e.session_timeout_ms,
                e.rebalance_timeout_ms,
                e.protocols,
                True,
                group.generation,
                member.stale_claims,
                why,
            )
        )
    older = soft.joins.get(member.member_id)
    if older is not None:
        # The client has given up its first request and will not read this, but every request is answered.
        turn.reply(older, JoinReply(Code.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    soft.joins[member.member_id] = token


# ---- static members -----------------------------------------------------------------------------------------------
def _replace(turn: Turn, group: ClassicGroup, e: JoinGroup, token: int, old_id: str, new_id: str) -> None:
    """Gives the place of a static member that is back after a restart to its new member id. The old id is fenced."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    state, leader, protocol = group.state, group.leader, group.protocol
    why = f"instance {e.instance_id}: {new_id} replaces {old_id}: {e.reason or 'not provided'}"
    _hand_over(turn, group, e, old_id, new_id, why)
    fenced = soft.joins.pop(old_id, None)
    if fenced is not None:
        turn.reply(fenced, JoinReply(Code.FENCED_INSTANCE_ID, member_id=old_id))
    fenced = soft.syncs.pop(old_id, None)
    if fenced is not None:
        turn.reply(fenced, SyncReply(Code.FENCED_INSTANCE_ID))
    soft.new.discard(old_id)
    turn.timers.cancel((SESSION, group.group_id, old_id))
    if old_id in soft.unsynced:
        soft.unsynced.discard(old_id)
        soft.unsynced.add(new_id)
    if state is not State.STABLE or group.select_protocol() != protocol:
        soft.joins[new_id] = token
        arm_session(turn, group, new_id)
        if state is State.PREPARING:
            complete_if_all_joined(turn, group)
        else:
            prepare(turn, group, why, Reason.JOINED)
        return
    arm_session(turn, group, new_id)
    reply = joined(group, new_id)
    if e.version >= SKIP_ASSIGNMENT_SINCE:
        if group.leader == new_id:
            reply.skip_assignment, reply.members = True, leaders_view(turn, group)
    else:
        # An older client that finds itself the leader would assign, so its answer names the old leader.
        reply.leader = leader or ""
    turn.reply(token, reply)


def _hand_over(turn: Turn, group: ClassicGroup, e: JoinGroup, old_id: str, new_id: str, why: str) -> None:
    assignment = group.assignments.get(old_id)
    old = group.members[old_id]
    turn.write(Tombstone(Kind.MEMBER, group.group_id, old_id, why))
    if assignment is not None:
        turn.write(Tombstone(Kind.ASSIGNMENT, group.group_id, old_id, why))
    new = replace(
        old,
        member_id=new_id,
        protocols=e.protocols,
        session_timeout_ms=e.session_timeout_ms,
        rebalance_timeout_ms=e.rebalance_timeout_ms,
        generation=group.generation,
        stale_claims=(),
        why=why,
    )
    turn.write(new)
    if assignment is not None:
        turn.write(AssignmentRecord(group.group_id, new_id, group.assigned_generation, assignment, why))
    if group.leader == old_id:
        go(turn, group, group.state, why, leader=new_id)
