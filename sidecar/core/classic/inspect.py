"""Views of classic groups for people: generations, and the members that a rebalance waits for (runtime/inspect.py).

The members that have joined the rebalance under way are in the owner's memory alone (soft_state.py). The log has only
those whose JoinGroup brought changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sidecar.core.classic.embedded import CONSUMER_TYPE, assigned, topics_of
from sidecar.core.classic.group import ClassicGroup, Member
from sidecar.core.classic.rebalance import SESSION
from sidecar.core.classic.records import Kind, State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.runtime.inspect import (
    SETTLED,
    Body,
    Explained,
    GroupRecords,
    Heading,
    Inspect,
    Live,
    MemberView,
    Names,
    Note,
    Owned,
    Progress,
    Wait,
    client_of,
    listed,
    member_name,
    topic_place,
)
from sidecar.core.vocabulary.topics import TopicImage

TO_JOIN, JOINED, SYNCS, LEADS = "to join", "joined", "syncs", "to assign"
"""States of a member. TO_JOIN: the rebalance may still need its JoinGroup; JOINED: it has joined the rebalance under
way; SYNCS: it waits for the leader's assignment; LEADS: it is the leader, whose assignment is missing."""
STATES = {
    State.EMPTY: "it has no members",
    State.PREPARING: "it waits for its members to join again",
    State.COMPLETING: "it waits for its leader's assignment",
    State.STABLE: "everybody has what it is to have",
}


def _facts(group: ClassicGroup) -> dict[str, Any]:
    """Returns the group's facts. `epoch` is the generation, None until all members of an adopted group have joined;
    `assignor` is the protocol."""
    epochs = {"epoch": None if group.adopted else group.generation, "assignment_epoch": group.assigned_generation}
    return {**epochs, "assignor": group.protocol or "", "leader": group.leader, "since_ms": group.since_ms}


def _member(group: ClassicGroup, member_id: str, names: Names) -> MemberView | None:
    m = group.members.get(member_id)
    if m is None:
        return None
    owned = _owned(group, member_id)
    claims = [
        {"topic": c.topic, "partitions": list(c.partitions), "generation": c.generation, "holder": c.holder}
        for c in m.stale_claims
    ]
    return MemberView(
        member_id,
        m.client_id,
        m.client_host,
        m.instance_id,
        protocol=group.kind,
        epoch=None if group.adopted else group.generation,
        topics=topics_of(m.protocols[0][1]) if m.protocols else None,
        owns=owned,
        target=owned,
        more={"stale_claims": claims},
    )


def _owned(group: ClassicGroup, member_id: str) -> Owned:
    """Returns a consumer's partitions; for other members, the length of the assignment."""
    assignment = group.assignments.get(member_id)
    if assignment is None:
        return {}
    owned = assigned(assignment) if group.type == CONSUMER_TYPE else None
    return f"{len(assignment)} bytes" if owned is None else {t: list(ps) for t, ps in owned.items()}


def _live(soft: ClassicSoft) -> dict[str, Any]:
    return {"joined": sorted(soft.joins), "to_come": sorted(soft.pending), "not_synced": sorted(soft.unsynced)}


# ---- rebalances -----------------------------------------------------------------------------------------------------
def _heading(body: Body) -> Heading:
    return Heading(body["generation"], body["state"])


def _begins(before: Heading | None, now: Heading) -> bool:
    return before is None or (now.state == State.PREPARING and before.state != State.PREPARING)


def _places(body: Body) -> set[tuple[Any, ...]]:
    return {(t, p) for t, ps in (assigned(body["assignment"]) or {}).items() for p in ps}


def _group_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is None:
        yield Note("the group is gone")
        return
    leader = f", leader {body['leader']}" if body["leader"] else ""
    yield Note(body["state"], "", f"generation {body['generation']}{leader}")


def _member_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is None:
        if last is not None:
            yield Note("left", sub_id, client_of(last))
        return
    if last is None:
        yield Note("joined", sub_id, client_of(body))
    claims = [] if last is None else last["stale_claims"]
    for c in body["stale_claims"]:
        if c not in claims:
            held = f"which is {c['holder']}'s" if c["holder"] else "which nobody owned"
            places = " ".join(topic_place(c["topic"], p) for p in c["partitions"])
            yield Note("claims what it has lost", sub_id, f"{places}, {held}")


# ---- explaining -----------------------------------------------------------------------------------------------------
def _explain(records: GroupRecords, group: ClassicGroup, image: TopicImage | None, live: Live | None) -> Explained:
    since = group.since_ms or records.since(Kind.GROUP)
    until = since + group.rebalance_timeout_ms()
    members = {m.member_id: _progress(records, group, m, since, live) for m in group.members.values()}
    waits, notes = _waits(group, members, since, until, live), _notes(group, members, live)
    return Explained(since, members, tuple(waits), tuple(notes))


def _progress(records: GroupRecords, group: ClassicGroup, m: Member, since_ms: int, live: Live | None) -> Progress:
    member_ms, state = records.since(Kind.MEMBER, m.member_id), SETTLED
    if group.state is State.PREPARING:
        # A member record in the batch that began the rebalance, or later, came with a JoinGroup. A new owner has lost
        # that request, and the member joins again.
        offset, began = records.offset(Kind.MEMBER, m.member_id), records.offset(Kind.GROUP)
        joined = offset >= 0 and began >= 0 and (offset > began or member_ms >= since_ms)
        joins_again = offset >= 0 and records.taken_over_ms > member_ms
        known = m.member_id in live.joined if live is not None else joined and not joins_again
        state = JOINED if known else TO_JOIN
    elif group.state is State.COMPLETING:
        state = LEADS if m.member_id == group.leader else SYNCS
    at_ms = since_ms if state in (TO_JOIN, SYNCS, LEADS) else records.since(Kind.ASSIGNMENT, m.member_id)
    return Progress(state, at_ms or member_ms, _next(group, state))


def _next(group: ClassicGroup, state: str) -> str:
    if state == TO_JOIN:
        return "its next heartbeat is answered REBALANCE_IN_PROGRESS, and it joins again, unless it has done so"
    if state == JOINED:
        return "its JoinGroup is answered when all have joined, or the rebalance timeout is over"
    if state == LEADS:
        return "its SyncGroup brings the assignment, which ends the rebalance"
    if state == SYNCS:
        return f"its SyncGroup is answered when the leader {group.leader} has sent the assignment"
    return "nothing new"


def _waits(
    group: ClassicGroup, members: dict[str, Progress], since_ms: int, until_ms: int, live: Live | None
) -> Iterable[Wait]:
    if group.state is State.PREPARING and live is not None:
        late = [m for m, p in members.items() if p.state == TO_JOIN]
        joined = [m for m, p in members.items() if p.state == JOINED]
        again = (since_ms, True, until_ms, "to join again")
        yield from (Wait(member, (), holder, *again) for holder in late for member in joined)
    if group.state is State.COMPLETING and group.leader in group.members:
        for m in members:
            if m != group.leader:
                yield Wait(m, (), group.leader or "", since_ms, True, until_ms, "to assign")


def _notes(group: ClassicGroup, members: dict[str, Progress], live: Live | None) -> Iterable[str]:
    open_ = [member_name(m, group.members[m].client_id) for m, p in members.items() if p.state == TO_JOIN]
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
            places = listed([topic_place(c.topic, p) for p in c.partitions])
            yield f"{m.member_id} claims {places}, {held} (KIP-792)."
    if group.type not in (None, CONSUMER_TYPE):
        yield f"Its protocol type is {group.type}: what its members are assigned is in their own words."


INSPECT = Inspect(
    states={str(s): STATES[s] for s in State},
    at_rest=frozenset((State.STABLE, State.EMPTY)),
    facts=_facts,
    member=_member,
    heading=_heading,
    begins=_begins,
    places=_places,
    history={Kind.GROUP: _group_notes, Kind.MEMBER: _member_notes},
    explain=_explain,
    session=SESSION,
    live=_live,
    phases=True,
    epoch_name="generation",
    assignor_name="protocol",
)
