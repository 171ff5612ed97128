"""A consumer group, some of whose members may speak the classic protocol: who has not come to the target, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sidecar.audit.explain.model import Explanation, Limits, Live, Seen, Wait
from sidecar.audit.explain.replay import Replayed
from sidecar.audit.explain.texts import listed, lost, managed, removed
from sidecar.core.consumer.group import ConsumerGroup, GroupState, Member
from sidecar.core.consumer.reconcile import Target, reconcile
from sidecar.core.consumer.records import Kind, MemberState
from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from sidecar.core.runtime.records import Epochs, Partitions
from sidecar.core.vocabulary.topics import TopicImage

SETTLED, GIVES_UP, WAITS, BEHIND, AWAY = "settled", "gives up", "waits", "not heard", "away"
"""It has what it is to have; it was told to give partitions up; others have not given up what it is to get; it has
sent no heartbeat since the target is what it is; a static member that left for a while."""


def explain(
    told: Replayed, group: ConsumerGroup, image: TopicImage | None, limits: Limits, live: Live | None
) -> Explanation:
    """`image`: the topics as they are; None: nobody knows, and regular expressions and changes are not judged."""
    names = told.names | dict(image.names if image is not None else {})
    epoch = group.assignment_epoch
    members = tuple(_Member(told, group, m, names).seen() for m in group.members.values())
    waits = tuple(w for m in group.members.values() for w in _waits(told, group, m, names))
    state = group.state()
    stable = state in (GroupState.STABLE, GroupState.EMPTY)
    since = told.since(Kind.GROUP)
    if state is GroupState.STABLE:
        since = max([told.since(Kind.CURRENT, m) for m in group.members], default=since)
    return Explanation(
        told.group_id,
        "consumer",
        str(state),
        stable,
        since,
        group.epoch,
        epoch,
        group.assignor,
        told.why(Kind.GROUP),
        told.coordinator,
        tuple(replace(s, next=_next(told, group, s, names, waits)) for s in members),
        waits,
        removed(told.rows, limits),
        (*_notes(told, group, image, live), *managed(told.configs), *lost(told)),
    )


class _Member:
    def __init__(self, told: Replayed, group: ConsumerGroup, member: Member, names: Mapping[bytes, str]) -> None:
        self._told, self._group, self._member, self._names = told, group, member, names

    def seen(self) -> Seen:
        m, target = self._member, self._group.target.of(self._member.member_id)
        state, since = self._state()
        return Seen(
            m.member_id,
            m.client_id,
            m.client_host.lstrip("/"),
            m.instance_id or "",
            "consumer" if m.classic is None else "classic",
            m.member_epoch,
            state,
            since,
            places(m.assigned, self._names),
            places(m.pending, self._names),
            places(target, self._names),
        )

    def _state(self) -> tuple[str, int]:
        m, since = self._member, self._told.since(Kind.CURRENT, self._member.member_id)
        if m.member_epoch == STATIC_LEAVE_EPOCH:
            return AWAY, since
        if m.state is MemberState.UNREVOKED_PARTITIONS:
            return GIVES_UP, since
        if m.member_epoch != self._group.assignment_epoch:
            return BEHIND, max(since, self._told.since(Kind.TARGET_METADATA))
        return (WAITS if m.state is MemberState.UNRELEASED_PARTITIONS else SETTLED), since


def _waits(told: Replayed, group: ConsumerGroup, m: Member, names: Mapping[bytes, str]) -> Iterable[Wait]:
    """For whom this member waits, now or as soon as it is heard."""
    held: dict[str, dict[bytes, list[int]]] = {}
    for topic, partitions in group.target.of(m.member_id).items():
        owners = group.owners.get(topic, {})
        for p in partitions:
            holder = owners.get(p)
            if holder is not None and holder != m.member_id:
                held.setdefault(holder, {}).setdefault(topic, []).append(p)
    for holder, parts in held.items():
        other = group.members[holder]
        asked = {t: [p for p in ps if p in other.pending.get(t, {})] for t, ps in parts.items()}
        kept = {t: [p for p in ps if p not in asked[t]] for t, ps in parts.items()}
        since = told.since(Kind.CURRENT, holder)
        # A new owner gives everybody the whole time again.
        begin = since if told.coordinator is None else max(since, told.coordinator.since_ms)
        for part, was_told in ((asked, True), (kept, False)):
            if any(part.values()):
                until = begin + other.rebalance_timeout_ms if was_told and other.rebalance_timeout_ms >= 0 else None
                yield Wait(m.member_id, places(part, names), holder, since, was_told, until)


def _next(told: Replayed, group: ConsumerGroup, seen: Seen, names: Mapping[bytes, str], waits: tuple[Wait, ...]) -> str:
    """What the next heartbeat of this member brings, as the core reconciles it."""
    m, epoch = group.members[seen.member], group.assignment_epoch
    if seen.state == AWAY:
        return "it joins again with its instance id and goes on with what it owned, or is removed when its session ends"
    classic = m.classic is not None
    if classic and not m.reconciled_to(epoch):
        rejoin = "its next heartbeat is answered REBALANCE_IN_PROGRESS, and it joins and syncs again"
        return f"{rejoin}, without {listed(seen.gives_up)}" if seen.gives_up else rejoin
    if group.epoch > epoch and m.reconciled_to(epoch):
        return f"nothing yet: the target of epoch {group.epoch} has not been computed"
    if m.reconciled_to(epoch):
        return "nothing new"
    # What it subscribes to is judged by the target alone: an assignor gives nobody what it does not subscribe to.
    subscribed = frozenset({*group.target.of(m.member_id), *m.assigned, *m.pending})
    if seen.state == GIVES_UP:
        kept: Partitions = m.assigned_partitions()
        then = _reconciled(group, m, subscribed, kept)
        return (
            f"nothing as long as it says that it owns {listed(seen.gives_up)}; "
            f"without them {_reached(then, m, epoch, names)}"
        )
    after = _reconciled(group, m, subscribed, None)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        return f"it is told to give up {listed(places(after.pending, names))}"
    if after.member_epoch == m.member_epoch and after.state == m.state and after.assigned == m.assigned:
        holders = sorted({w.holder for w in waits if w.member == m.member_id})
        return f"nothing, as long as {', '.join(holders)} has not given up what it waits for"
    return _reached(after, m, epoch, names)


def _reconciled(group: ConsumerGroup, m: Member, subscribed: frozenset[bytes], owned: Partitions | None) -> Member:
    target = Target(group.assignment_epoch, group.target.of(m.member_id))
    return reconcile(m, target, subscribed, False, owned, lambda t, p: group.owners.get(t, {}).get(p))


def _reached(after: Member, before: Member, epoch: int, names: Mapping[bytes, str]) -> str:
    new = {t: [p for p in ps if p not in before.assigned.get(t, {})] for t, ps in after.assigned.items()}
    gets = f" and gets {listed(places(new, names))}" if any(new.values()) else ""
    still = ", and waits for the rest" if after.state is MemberState.UNRELEASED_PARTITIONS else ""
    return f"it comes to epoch {epoch}{gets}{still}"


def _notes(told: Replayed, group: ConsumerGroup, image: TopicImage | None, live: Live | None) -> Iterable[str]:
    ahead = group.epoch > group.assignment_epoch and bool(group.members)
    if ahead and live is not None and live.assignor_runs:
        yield f"The assignor {live.assignor_runs} runs for epoch {group.epoch} just now."
    elif ahead and live is not None and live.failures:
        yield (
            f"The assignor failed (in a row: {live.failures}) and is tried again: the owner's log says why "
            "(assignor failed)."
        )
    elif ahead and live is not None:
        yield f"The assignor runs for epoch {group.epoch} when the assignment interval is over."
    elif ahead:
        yield (
            f"The target of epoch {group.epoch} is not there yet: the assignor runs, or waits for the assignment "
            "interval, or fails; the log of the owner (assignor failed) and sidecar_assignor_failures_total tell."
        )
    if image is not None and group.members and group.hash_over(image) != group.metadata_hash:
        yield "The topics are others than when the epoch was made: the next heartbeat makes a new one."
    unresolved = {m.topic_regex for m in group.members.values() if m.topic_regex} - group.regexes.keys()
    for regex in sorted(r for r in unresolved if r):
        yield f"The regular expression {regex} is not resolved yet: until then it stands for no topic."
    for m, left_ms in () if live is None else sorted(live.silence_left_ms.items()):
        if m in group.members and not group.members[m].reconciled_to(group.assignment_epoch):
            yield f"{m} is removed for silence in {max(0, left_ms) / 1000:.1f} s, unless it is heard."
    nobody = [m for m in group.members if not group.target.of(m)]
    if nobody and group.epoch == group.assignment_epoch:
        yield f"{len(nobody)} of {len(group.members)} members are to own nothing: no partitions are left for them."
    if any(m.member_epoch == LEAVE_EPOCH for m in group.members.values()):
        yield "The log has parts of a member only, as compaction leaves them behind."


def places(parts: Epochs | Partitions | Mapping[bytes, list[int]], names: Mapping[bytes, str]) -> tuple[str, ...]:
    """TOPIC-N, in order; a topic whose name nobody knows by its id."""
    found = [(names.get(t) or t.hex(), p) for t, ps in parts.items() for p in ps]
    return tuple(f"{name}-{p}" for name, p in sorted(found))
