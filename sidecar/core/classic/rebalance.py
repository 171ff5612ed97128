"""A rebalance of a classic group, from its beginning to the end of the join phase; the states are a table in
records.py.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, tryCompleteInitialRebalance...,
expirePendingSync), design text 'Client-side Assignment Proposal'. Unlike in Kafka, each change of state is in the log
before any member learns of it. So a generation is never given out twice, and a rebalance that was under way when its
coordinator died goes on.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.classic.config import config_of
from sidecar.core.classic.embedded import CONSUMER_TYPE, assignment, subscription
from sidecar.core.classic.events import JoinedMember, JoinReply, SyncReply
from sidecar.core.classic.group import ClassicGroup, Member, may_follow
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, Kind, State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.classic.stale_claims import anybody_owns, newest_claim, report, shown, stale_claims_of
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, InvariantError
from sidecar.core.vocabulary.rebalance_reasons import Reason, listed

JOIN, SYNC, SESSION = "classic_join", "classic_sync", "classic_session"
"""Timers: the end of the join phase, the end of the sync phase, a member's session."""
NO_JOINS_PAUSE_MS = 1_000
"""Shortest pause between two checks of a join phase that no member has joined: rebalance timeouts may be 0."""
RELEASE_ROUNDS = 3
"""Most generations without partitions in a release. After them members are sent away without being asked again whether
they own any."""


# ---- states -------------------------------------------------------------------------------------------------------
def go(turn: Turn, group: ClassicGroup, state: State, why: str, **fields: object) -> None:
    """Writes the group's next state: the only place that changes it."""
    if state is not group.state and not may_follow(group.state, state):
        raise InvariantError(f"group {group.group_id}: {state} after {group.state}")
    now = GroupRecord(
        group.group_id,
        state,
        group.generation,
        group.type,
        group.protocol,
        group.leader,
        group.assigned_generation,
        turn.now.wall_ms if state is not group.state else group.since_ms,
        why,
        group.adopted,
    )
    turn.write(replace(now, **fields))  # type: ignore[arg-type]


# ---- begin --------------------------------------------------------------------------------------------------------
def rebalance_or_complete(turn: Turn, group: ClassicGroup, why: str, reason: Reason) -> None:
    """Begins a rebalance after a member came, left or changed, or completes the one under way if it waited for that."""
    if group.state is State.PREPARING:
        complete_if_all_joined(turn, group)
    else:
        prepare(turn, group, why, reason)


def prepare(turn: Turn, group: ClassicGroup, why: str, reason: Reason) -> None:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.COMPLETING:
        _fail_syncs(turn, group, soft)
        soft.unsynced = set(group.members)  # no member has received an assignment
    turn.timers.cancel((SYNC, group.group_id))
    initial = group.state is State.EMPTY
    soft.initial, soft.grew, soft.warned_of_no_joins = initial, False, False
    go(turn, group, State.PREPARING, why)
    soft.rebalances(turn.now.mono_ms)
    turn.fx.count("rebalances", group.kind, reason)
    turn.fx.log("rebalance", group_id=group.group_id, generation=group.generation, why=why)
    if initial:
        soft.delay_ms = config_of(turn, group.group_id).initial_rebalance_delay_ms
        soft.left_ms = max(group.rebalance_timeout_ms() - soft.delay_ms, 0)
        turn.timers.set((JOIN, group.group_id), turn.now.mono_ms + soft.delay_ms)
        if not soft.delay_ms:
            complete_join(turn, group)
    elif all_joined(group, soft):
        complete_join(turn, group)
    else:
        await_join(turn, group)


def await_join(turn: Turn, group: ClassicGroup, at_least_ms: int = 0) -> None:
    timeout_ms = max(group.rebalance_timeout_ms(), at_least_ms)
    turn.arm_removal((JOIN, group.group_id), timeout_ms)


def _fail_syncs(turn: Turn, group: ClassicGroup, soft: ClassicSoft) -> None:
    """Answers waiting SyncGroup requests with REBALANCE_IN_PROGRESS: their members must join again."""
    syncs, soft.syncs = soft.syncs, {}
    for member_id, token in syncs.items():
        turn.reply(token, SyncReply(Code.REBALANCE_IN_PROGRESS))
        arm_session(turn, group, member_id)


# ---- the barrier --------------------------------------------------------------------------------------------------
def all_joined(group: ClassicGroup, soft: ClassicSoft) -> bool:
    return len(group.members) == len(soft.joins) and not soft.pending


def complete_if_all_joined(turn: Turn, group: ClassicGroup, even_initial: bool = False) -> None:
    """Ends the join phase if all members have joined. The initial rebalance waits for its delay in any case, unless
    `even_initial`."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.PREPARING and (even_initial or not soft.initial) and all_joined(group, soft):
        complete_join(turn, group)


def join_due(turn: Turn, group: ClassicGroup, key: tuple[str, ...], tag: int) -> None:
    """Ends the join phase, or extends the delay of the initial rebalance, when the timer is due."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is not State.PREPARING:
        return
    if soft.initial and soft.grew and soft.left_ms:
        soft.grew = False
        delay_ms = min(config_of(turn, group.group_id).initial_rebalance_delay_ms, soft.left_ms)
        soft.left_ms = max(soft.left_ms - soft.delay_ms, 0)
        soft.delay_ms = delay_ms
        turn.timers.set(key, turn.now.mono_ms + delay_ms)
    else:
        complete_join(turn, group)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """Ends the join phase: removes members that have not joined (static members stay, except in a release), and gives
    the others the new generation."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    turn.timers.cancel((JOIN, group.group_id))
    for member in [m for m in group.members.values() if m.member_id not in soft.joins]:
        if member.instance_id is None or soft.releasing:
            forget(turn, group, member.member_id, "did not join in time")
    if group.members and not soft.joins:
        # Only static members are left, and none of them came: their sessions decide.
        await_join(turn, group, NO_JOINS_PAUSE_MS)
        if not soft.warned_of_no_joins:
            turn.fx.log("nobody joined", level="warning", group_id=group.group_id, members=len(group.members))
        soft.warned_of_no_joins = True
        return
    soft.initial = soft.grew = False
    if not group.members:
        _empty(turn, group, "the last member left")
    elif soft.releasing and _all_gave_up(group, soft):
        _send_away(turn, group, soft)
    else:
        _next_generation(turn, group, soft)


def _empty(turn: Turn, group: ClassicGroup, why: str) -> None:
    generation = _following(group)
    soft: ClassicSoft = turn.soft_of(group.group_id)
    soft.unsettled_since_ms = None
    go(turn, group, State.EMPTY, why, generation=generation, protocol=None, leader=None, adopted=False)
    turn.fx.log("group is empty", group_id=group.group_id, generation=group.generation)


def _following(group: ClassicGroup) -> int:
    """Returns the next generation: higher than any that a member has ever been in."""
    known = max(group.generation, newest_claim(group)) if group.adopted else group.generation
    return known + 1


# ---- the way back to the broker -----------------------------------------------------------------------------------
def _all_gave_up(group: ClassicGroup, soft: ClassicSoft) -> bool:
    """Whether all members have joined and none owns partitions. Always true for protocols other than the consumers':
    their metadata does not name owned partitions."""
    if group.type != CONSUMER_TYPE or soft.rounds >= RELEASE_ROUNDS:
        return True
    return not anybody_owns(group, group.select_protocol())


def _send_away(turn: Turn, group: ClassicGroup, soft: ClassicSoft) -> None:
    why = "the group goes back to the broker"
    joins, soft.joins = soft.joins, {}
    for member_id, token in joins.items():
        turn.reply(token, JoinReply(Code.NOT_COORDINATOR, member_id=member_id))
    for member_id in list(group.members):
        forget(turn, group, member_id, why)
    _empty(turn, group, why)


def _nothing(group: ClassicGroup) -> dict[str, bytes]:
    """Returns an assignment without partitions for each member."""
    subscriptions = {m.member_id: subscription(m.metadata(group.protocol)) for m in group.members.values()}
    return {member_id: assignment(0 if s is None else s.version, ()) for member_id, s in subscriptions.items()}


def _next_generation(turn: Turn, group: ClassicGroup, soft: ClassicSoft) -> None:
    # When a leader goes, Kafka makes another member the leader at once, so members that join later do not lead first.
    leader = group.leader if group.leader in soft.joins else next(m for m in group.members if m in soft.joins)
    protocol = group.select_protocol()
    stale = stale_claims_of(group, protocol)
    report(turn, group, stale)
    go(
        turn,
        group,
        State.COMPLETING,
        f"{len(soft.joins)} of {len(group.members)} members joined",
        generation=_following(group),
        protocol=protocol,
        leader=leader,
        adopted=False,
    )
    members = leaders_view(turn, group)
    joins, soft.joins = soft.joins, {}
    for member_id in group.members:
        token = joins.get(member_id)
        if token is not None:
            turn.reply(token, joined(group, member_id, members if member_id == leader else ()))
        arm_session(turn, group, member_id)
    soft.new.clear()
    soft.unsynced = set(group.members)
    await_sync(turn, group)
    turn.fx.log(
        "generation", group_id=group.group_id, generation=group.generation, members=len(group.members), leader=leader
    )


def leaders_view(turn: Turn, group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """Returns the members as the leader sees them."""
    strip = config_of(turn, group.group_id).stale_claims == "strip"
    return tuple(
        JoinedMember(m.member_id, m.instance_id, shown(m, group.protocol, strip)) for m in group.members.values()
    )


def joined(group: ClassicGroup, member_id: str, members: tuple[JoinedMember, ...] = ()) -> JoinReply:
    return JoinReply(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=members,
    )


# ---- the sync phase -----------------------------------------------------------------------------------------------
def stabilize(turn: Turn, group: ClassicGroup, given: dict[str, bytes]) -> None:
    """Writes the leader's assignments, then answers every waiting SyncGroup."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    why = f"assigned by {group.leader} in generation {group.generation}"
    if soft.releasing and group.type == CONSUMER_TYPE:
        why, given = f"the group goes back to the broker: nothing in generation {group.generation}", _nothing(group)
        soft.rounds += 1
    for member_id in group.members:
        part = given.get(member_id, b"")
        if group.assignments.get(member_id) != part:
            turn.write(AssignmentRecord(group.group_id, member_id, group.generation, part, why))
    go(turn, group, State.STABLE, why, assigned_generation=group.generation)
    missing = [m for m in group.members if m not in given]
    if missing:
        turn.fx.log("no assignment for members", level="warning", group_id=group.group_id, members=missing)
    syncs, soft.syncs = soft.syncs, {}
    for member_id, token in syncs.items():
        turn.reply(token, synced(group, member_id))
        arm_session(turn, group, member_id)
    turn.fx.count("completed_rebalances", group.kind)
    if soft.unsettled_since_ms is not None:
        turn.fx.observe("settle_seconds", turn.now.mono_ms - soft.unsettled_since_ms, group.kind)
        soft.unsettled_since_ms = None
    go_on_releasing(turn, group)


def synced(group: ClassicGroup, member_id: str) -> SyncReply:
    return SyncReply(
        protocol_type=group.type, protocol=group.protocol, assignment=group.assignments.get(member_id, b"")
    )


def has_synced(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    soft: ClassicSoft = turn.soft_of(group.group_id)
    soft.unsynced.discard(member_id)
    if not soft.unsynced:
        turn.timers.cancel((SYNC, group.group_id))


def go_on_releasing(turn: Turn, group: ClassicGroup) -> None:
    """Begins the next rebalance of a release, once all members have an empty assignment: they join again and report the
    partitions that they own."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if soft.releasing and group.state is State.STABLE and not soft.unsynced:
        prepare(turn, group, "the group goes back to the broker", Reason.MOVED)


def sync_due(turn: Turn, group: ClassicGroup, key: tuple[str, ...], generation: int) -> None:
    """Removes members that did not sync within the rebalance timeout."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if generation != group.generation or not soft.unsynced or group.state not in (State.COMPLETING, State.STABLE):
        return
    late = sorted(soft.unsynced)
    for member_id in late:
        forget(turn, group, member_id, "did not sync in time")
    prepare(turn, group, f"{listed(late)} did not sync in time", Reason.LATE)


def await_sync(turn: Turn, group: ClassicGroup) -> None:
    turn.arm_removal((SYNC, group.group_id), group.rebalance_timeout_ms(), group.generation)


# ---- members ------------------------------------------------------------------------------------------------------
def arm_session(turn: Turn, group: ClassicGroup, member_id: str, more_ms: int = 0) -> None:
    member = group.members.get(member_id)
    if member is not None:
        turn.arm_removal((SESSION, group.group_id, member_id), member.session_timeout_ms + more_ms)


def forget(turn: Turn, group: ClassicGroup, member_id: str, why: str) -> Member | None:
    """Removes a member, and answers its waiting requests with UNKNOWN_MEMBER_ID, so that the client joins anew. Returns
    the former member."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    turn.timers.cancel((SESSION, group.group_id, member_id))
    soft.pending.discard(member_id)
    soft.unsynced.discard(member_id)
    soft.new.discard(member_id)
    token = soft.joins.pop(member_id, None)
    if token is not None:
        turn.reply(token, JoinReply(Code.UNKNOWN_MEMBER_ID))
    token = soft.syncs.pop(member_id, None)
    if token is not None:
        turn.reply(token, SyncReply(Code.UNKNOWN_MEMBER_ID))
    member = group.members.get(member_id)
    if member is None:
        return None
    if member_id in group.assignments:
        turn.write(Tombstone(Kind.ASSIGNMENT, group.group_id, member_id, why))
    turn.write(Tombstone(Kind.MEMBER, group.group_id, member_id, why))
    turn.fx.log("member removed", group_id=group.group_id, member_id=member_id, why=why)
    return member
