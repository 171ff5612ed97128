"""A classic group: which phase of a rebalance it is in, and for whom that waits, as far as the log can tell.

Who has joined a rebalance that is under way is in the memory of the owner alone (core/classic/soft_state.py); the log
says it only of members that said something new when they joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sidecar.audit.explain.model import Explanation, Limits, Live, Seen, Wait
from sidecar.audit.explain.replay import Replayed
from sidecar.audit.explain.texts import listed, lost, managed, removed
from sidecar.core.classic.embedded import CONSUMER_TYPE, assigned
from sidecar.core.classic.group import ClassicGroup, Member
from sidecar.core.classic.records import Kind, State

SETTLED, TO_JOIN, JOINED, SYNCS, LEADS = "settled", "to join", "joined", "syncs", "to assign"
"""It has its assignment; it may have to join still; it has joined the rebalance under way; it waits for the leader's
assignment; it is the leader, which is to bring the assignment."""


def explain(told: Replayed, group: ClassicGroup, limits: Limits, live: Live | None) -> Explanation:
    since = group.since_ms or told.since(Kind.GROUP)
    members = tuple(_seen(told, group, m, since, live) for m in group.members.values())
    until = since + group.rebalance_timeout_ms()
    return Explanation(
        told.group_id,
        "classic",
        str(group.state),
        group.state in (State.STABLE, State.EMPTY),
        since,
        group.generation,
        group.assigned_generation,
        group.protocol or "",
        told.why(Kind.GROUP),
        told.coordinator,
        tuple(replace(s, next=_next(group, s)) for s in members),
        tuple(_waits(group, members, since, until, live)),
        removed(told.rows, limits),
        (*_notes(group, members, until, live), *managed(told.configs), *lost(told)),
    )


def _seen(told: Replayed, group: ClassicGroup, m: Member, since_ms: int, live: Live | None) -> Seen:
    owned = assigned(group.assignments.get(m.member_id, b"")) if group.type == CONSUMER_TYPE else None
    said = told.said.get((str(Kind.MEMBER), m.member_id))
    began = told.said.get((str(Kind.GROUP), ""))
    state = SETTLED
    if group.state is State.PREPARING:
        # What was written in the batch that began the rebalance, or later, came with a JoinGroup. A new owner knows
        # nothing of it, and that member joins again.
        joined = said is not None and began is not None and (said.offset > began.offset or said.ms >= since_ms)
        anew = said is not None and told.coordinator is not None and told.coordinator.since_ms > said.ms
        known = m.member_id in live.joined if live is not None else joined and not anew
        state = JOINED if known else TO_JOIN
    elif group.state is State.COMPLETING:
        state = LEADS if m.member_id == group.leader else SYNCS
    at_ms = since_ms if state in (TO_JOIN, SYNCS, LEADS) else told.since(Kind.ASSIGNMENT, m.member_id)
    places = () if owned is None else tuple(f"{t}-{p}" for t, ps in sorted(owned.items()) for p in sorted(ps))
    return Seen(
        m.member_id,
        m.client_id,
        m.client_host.lstrip("/"),
        m.instance_id or "",
        "classic",
        group.generation,
        state,
        at_ms or (0 if said is None else said.ms),
        places,
    )


def _waits(
    group: ClassicGroup, members: tuple[Seen, ...], since_ms: int, until_ms: int, live: Live | None
) -> Iterable[Wait]:
    if group.state is State.PREPARING and live is not None:
        late = [s.member for s in members if s.state == TO_JOIN]
        joined = [s.member for s in members if s.state == JOINED]
        yield from (Wait(member, (), holder, since_ms, True, until_ms) for holder in late for member in joined)
    if group.state is State.COMPLETING and group.leader in group.members:
        for s in members:
            if s.member != group.leader:
                yield Wait(s.member, (), group.leader or "", since_ms, True, until_ms)


def _next(group: ClassicGroup, s: Seen) -> str:
    if s.state == TO_JOIN:
        return "its next heartbeat is answered REBALANCE_IN_PROGRESS, and it joins again, unless it has done so"
    if s.state == JOINED:
        return "its JoinGroup is answered when all have joined, or the rebalance timeout is over"
    if s.state == LEADS:
        return "its SyncGroup brings the assignment, which ends the rebalance"
    if s.state == SYNCS:
        return f"its SyncGroup is answered when the leader {group.leader} has sent the assignment"
    return "nothing new"


def _notes(group: ClassicGroup, members: tuple[Seen, ...], until_ms: int, live: Live | None) -> Iterable[str]:
    open_ = [s.name for s in members if s.state == TO_JOIN]
    if live is not None and live.to_come and group.state is State.PREPARING:
        yield f"{listed(sorted(live.to_come))} was given a member id and has not come back; the group waits for it."
    if group.state is State.PREPARING and open_ and live is None:
        yield (
            f"All {len(members)} members must join again. Who of {listed(open_)} has done so is not in the log: "
            "only the owner knows (--admin asks it)."
        )
    if group.state is State.COMPLETING and group.leader not in group.members:
        yield "The leader has left; the rest of the group rebalances when their sync is over."
    if group.state is State.PREPARING and group.rebalance_timeout_ms():
        slow = max(group.members.values(), key=lambda m: m.rebalance_timeout_ms)
        yield (
            f"The longest rebalance timeout counts for all: {slow.rebalance_timeout_ms} ms, that of {slow.member_id} "
            f"({slow.client_id}); Java clients send max.poll.interval.ms."
        )
    if group.adopted:
        yield "It was taken over from the broker: its generation is known when all members have joined here."
    for m in group.members.values():
        for c in m.stale_claims:
            held = f"which is {c.holder}'s" if c.holder else "which nobody owns"
            yield f"{m.member_id} claims {listed([f'{c.topic}-{p}' for p in c.partitions])}, {held} (KIP-792)."
    if group.type not in (None, CONSUMER_TYPE):
        yield f"Its protocol type is {group.type}: what its members are assigned is in their own words."
