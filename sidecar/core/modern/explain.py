"""Explains the state of a group with epochs of any kind: the members that are behind the target, and whom they wait
for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from sidecar.core.runtime.inspect import (
    SETTLED,
    Explained,
    GroupRecords,
    Live,
    MemberView,
    Names,
    Owned,
    Progress,
    Wait,
    listed,
    owned_places,
    topic_place,
)
from sidecar.core.vocabulary.topics import TopicImage

GIVES_UP, WAITS, BEHIND, AWAY = "gives up", "waits", "not heard", "away"
"""States of a member. GIVES_UP: it must give partitions up; WAITS: others have not given up its partitions; BEHIND: it
has sent no heartbeat since the present target; AWAY: a static member that left for a while."""

COMES_BACK = "it joins again with its instance id and goes on with what it owned, or is removed when its session ends"


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that `holder` still has and another member waits for. `asked`: the holder has the request to give it
    up."""

    holder: str
    name: str
    partition: int
    asked: bool


@dataclass(frozen=True)
class Explainer:
    """The parts of an explanation that are specific to one kind."""

    group: str
    current: str
    target_epoch: str
    """Kinds of this kind's records."""
    view: Callable[[Any, Any, Names], MemberView]
    """(group, member, names) -> the member's view."""
    advance: Callable[[Any, Any, bool], Any]
    """(group, member, whether it has given up its revoked partitions) -> the member after its next heartbeat."""
    held: Callable[[Any, Any, Names], Iterable[Held]] = field(default=lambda group, member, names: ())
    next: Callable[[Any, Any, MemberView], str] = field(default=lambda group, member, view: "")
    """Effect of a member's next heartbeat in special cases; else ""."""
    notes: Callable[[Any, TopicImage | None], Iterable[str]] = field(default=lambda group, image: ())
    place: Callable[[str, int], str] = topic_place

    def __call__(self, records: GroupRecords, group: Any, image: TopicImage | None, live: Live | None) -> Explained:
        """`image`: the present topics; None: unknown, so that facts which depend on topics are left out."""
        names = {**records.names, **(image.names if image is not None else {})}
        views = {m.member_id: self.view(group, m, names) for m in group.members.values()}
        waits = tuple(w for m in group.members.values() for w in self._waits(records, group, m, names))
        since = records.since(self.group)
        if group.state_name() == "Stable":
            since = max([records.since(self.current, m) for m in group.members], default=since)
        members = {}
        for m in group.members.values():
            state, since_ms = self._state(records, group, m)
            follows = self._next(group, m, state, views[m.member_id], names, waits)
            members[m.member_id] = Progress(state, since_ms, follows)
        return Explained(since, members, waits, tuple(self._notes(group, image, live, views)))

    def _state(self, records: GroupRecords, group: Any, m: Any) -> tuple[str, int]:
        since = records.since(self.current, m.member_id)
        if m.member_epoch == STATIC_LEAVE_EPOCH:
            return AWAY, since
        if _revokes(m):
            return GIVES_UP, since
        if m.member_epoch != group.assignment_epoch:
            return BEHIND, max(since, records.since(self.target_epoch))
        return (SETTLED if m.reconciled_to(group.assignment_epoch) else WAITS), since

    def _waits(self, records: GroupRecords, group: Any, m: Any, names: Names) -> Iterable[Wait]:
        """Yields the members for which this member waits, now or from its next heartbeat on."""
        parts: dict[tuple[str, bool], dict[str, set[int]]] = {}
        for h in self.held(group, m, names):
            parts.setdefault((h.holder, h.asked), {}).setdefault(h.name, set()).add(h.partition)
        first = {holder: i for i, holder in enumerate(dict.fromkeys(holder for holder, _ in parts))}
        for (holder, revoking), by_name in sorted(parts.items(), key=lambda p: (first[p[0][0]], not p[0][1])):
            places = {name: tuple(partitions) for name, partitions in by_name.items()}
            since = records.since(self.current, holder)
            begin = max(since, records.taken_over_ms)  # a new owner gives all members the whole time again
            timeout = group.members[holder].rebalance_timeout_ms
            until = begin + timeout if revoking and timeout >= 0 else None
            yield Wait(m.member_id, owned_places(places, self.place), holder, since, revoking, until)

    def _next(self, group: Any, m: Any, state: str, view: MemberView, names: Names, waits: tuple[Wait, ...]) -> str:
        """Returns the effect of this member's next heartbeat, as the core reconciles it."""
        epoch = group.assignment_epoch
        if state == AWAY:
            return COMES_BACK
        if special := self.next(group, m, view):
            return special
        if m.reconciled_to(epoch):
            stale = group.epoch > epoch
            return f"nothing yet: the target of epoch {group.epoch} has not been computed" if stale else "nothing new"
        if state == GIVES_UP:
            then = self._reached(group, self.advance(group, m, True), view, names)
            return f"nothing as long as it says that it owns {self._listed(view.gives_up)}; without them {then}"
        after = self.advance(group, m, False)
        if _revokes(after):
            return f"it is told to give up {self._listed(self.view(group, after, names).gives_up)}"
        if (after.member_epoch, after.assigned, after.reconciled_to(epoch)) == (m.member_epoch, m.assigned, False):
            holders = sorted({w.holder for w in waits if w.member == m.member_id})
            return f"nothing, as long as {', '.join(holders)} has not given up what it waits for"
        return self._reached(group, after, view, names)

    def _reached(self, group: Any, after: Any, before: MemberView, names: Names) -> str:
        had = set(owned_places(before.owns, self.place))
        new = [p for p in owned_places(self.view(group, after, names).owns, self.place) if p not in had]
        gets = f" and gets {listed(new)}" if new else ""
        still = "" if after.reconciled_to(group.assignment_epoch) else ", and waits for the rest"
        return f"it comes to epoch {group.assignment_epoch}{gets}{still}"

    def _listed(self, owned: Owned) -> str:
        return listed(owned_places(owned, self.place))

    def _notes(
        self, group: Any, image: TopicImage | None, live: Live | None, views: Mapping[str, MemberView]
    ) -> Iterable[str]:
        stale = group.epoch > group.assignment_epoch and bool(group.members)
        if stale:
            yield _under_way(group, live)
        if image is not None and group.members and group.hash_over(image) != group.metadata_hash:
            yield "The topics are others than when the epoch was made: the next heartbeat makes a new one."
        yield from self.notes(group, image)
        for m, left_ms in () if live is None else sorted(live.silence_left_ms.items()):
            if m in group.members and not group.members[m].reconciled_to(group.assignment_epoch):
                yield f"{m} is removed for silence in {max(0, left_ms) / 1000:.1f} s, unless it is heard."
        without_target = [m for m, view in views.items() if not view.target]
        if without_target and group.epoch == group.assignment_epoch:
            yield f"{len(without_target)} of {len(views)} members are to own nothing: no partitions are left for them."
        if any(m.member_epoch == LEAVE_EPOCH for m in group.members.values()):
            yield "The log has parts of a member only, as compaction leaves them behind."


def _revokes(m: Any) -> bool:
    return bool(getattr(m, "revokes", False))


def _under_way(group: Any, live: Live | None) -> str:
    epoch = group.epoch
    if group.nobody_here:
        return f"The target of epoch {epoch} is computed when the first static member comes back."
    if live is None:
        return (
            f"The target of epoch {epoch} is not there yet: the assignor runs, or waits for the assignment "
            "interval, or fails; the log of the owner (assignor failed) and sidecar_assignor_failures_total tell."
        )
    if live.goes_back:
        return "The group goes back to the broker, and nobody is to own anything: no assignor runs."
    if live.assignor_runs:
        return f"The assignor {live.assignor_runs} runs for epoch {epoch} just now."
    if live.failures:
        failed = f"The assignor failed (in a row: {live.failures}) and is tried again"
        return f"{failed}: the owner's log says why (assignor failed)."
    return f"The assignor runs for epoch {epoch} when the assignment interval is over."
