"""Ownership intervals and overlaps of one group, folded in offset order. Pure. The tables of a lake come from gold/, on
Spark.

A member owns what its current assignment holds, assigned or pending revocation, until a later record of that member
lacks it or removes the member. If two members own a partition at the same offset, that is an overlap; there must be
none. Where values of the member's key are missing, its ownership is certain only until the last record before them, as
in gold (gold/ownership.py): only certain ownership proves an overlap.

The kind of group decides what a current assignment holds, and whether others may hold it too: several members of a
share group may have a partition, and only active tasks have a single member.

A member of a classic group owns what the leader assigned to it, until the leader assigns anew or the member is removed.
All assignments of a generation count from the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.classic.embedded import CONSUMER_TYPE, assigned
from sidecar.core.kinds import KINDS, REGISTRY
from sidecar.core.runtime.inspect import Body, HeldPartitions, topic_place
from sidecar.core.runtime.records import Role
from sidecar.core.runtime.registry import RecordRow
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.fold import HOLDING, UNFENCED, Claims, claimed_epoch

OWNING = {*HOLDING, OWNER_CLAIM} | {
    record.name for kind in KINDS for record in kind.records if record.role in (Role.GROUP, Role.MEMBER)
}
"""Kinds of records that determine ownership, and the epoch of the group."""
Place = tuple[str, int]
"""Key of a `HeldPartitions` (of a classic group the topic's name), partition."""
Held = dict[Place, HeldPartitions]
"""Places that a member owns."""


@dataclass(slots=True)
class Interval:
    """A member's ownership of a partition or task, from one record to another; `to_*` is None while it lasts.
    `place`: the partition or task as text; `alone`, `listed`: fields of `HeldPartitions`."""

    key: Place
    topic: str
    partition: int
    member_id: str
    member_epoch: int
    from_offset: int
    from_ms: int
    from_why: str
    place: str
    alone: bool
    listed: bool
    not_before: int | None
    """The last offset at which the member certainly did not own it; None: nothing earlier is known."""
    exact: bool
    """Whether ownership began with exactly that record: no value is missing before it."""
    stretches: list[Stretch]
    to_offset: int | None = None
    to_ms: int | None = None
    to_why: str | None = None
    to_exact: bool = True
    client_id: str = ""

    def sure(self, ms: int) -> bool:
        """Whether the member certainly owned it at that time."""
        return any(s.ms <= ms and (s.until_ms is None or ms <= s.until_ms) for s in self.stretches)


@dataclass(slots=True)
class Stretch:
    """A part of an interval in which ownership is certain; `until` is None while it lasts."""

    offset: int
    ms: int
    until: int | None = None
    until_ms: int | None = None


@dataclass(slots=True)
class Overlap:
    """Two members owned at one offset what only one may own; `proven` if both certainly did. There must be none.
    `second`: the interval of the one that began later."""

    first: str
    second: Interval
    offset: int
    time_ms: int
    proven: bool


EVER = 1 << 62


def _overlaps(owners: Sequence[Interval]) -> Iterator[Overlap]:
    """Yields the overlaps at one place. Each stretch is compared with two that began before it: the one that certainly
    lasts longest, and the one that possibly does. Of two with the same end, the one that began later counts."""
    begins = sorted(
        ((s.offset, i.member_id, n, s, i) for i in owners for n, s in enumerate(i.stretches)), key=lambda b: b[:3]
    )
    sure, perhaps = (-1, -1, ""), (-1, -1, "")
    for offset, member, n, s, i in begins:
        proven = sure[0] >= offset and sure[2] != member
        bound = -1 if i.not_before is None else i.not_before
        possible = n == 0 and perhaps[0] > bound + 1 and perhaps[2] != member
        if proven or possible:
            yield Overlap((sure if proven else perhaps)[2], i, offset, s.ms, proven)
        later = [s.offset for s in i.stretches[n + 1 : n + 2]] or [EVER if i.to_offset is None else i.to_offset]
        sure = max(sure, (EVER if s.until is None else s.until, i.from_offset, member))
        perhaps = max(perhaps, (later[0], i.from_offset, member))


@dataclass(slots=True)
class _Classic:
    """A classic group, as far as the log has been read."""

    type: str | None = None
    assigned_generation: int = -1
    members: set[str] = field(default_factory=set)
    """Ids of all members that ever had an assignment."""
    staged: dict[str, tuple[Any, Held, int]] = field(default_factory=dict)
    """Member id -> its next assignment, which counts from the group's next record on."""


class Fold:
    """The fold of one group. `add` takes its rows, and the claims of its partition, in offset order; what it has is
    complete at any time. `missing`: values that compaction removed before they were read; `complete_ms`: the time from
    which none is missing, None: from the beginning; `clients`: the latest client id of each member."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.missing = 0
        self.complete_ms: int | None = None
        self.clients: dict[str, str] = {}
        self._open: dict[str, dict[Place, Interval]] = {}
        """Member id -> its intervals that last."""
        self._last_current: dict[str, tuple[int, int]] = {}
        """Offset and time of the last record that determined what a member holds."""
        self._classic = _Classic()
        self._members: dict[str, Body] = {}
        """Members' own records."""
        self._revisions: dict[tuple[str, str], int] = {}
        self._owners = Claims()

    @property
    def overlaps(self) -> list[Overlap]:
        places: dict[Place, list[Interval]] = {}
        for i in (i for i in self.intervals if i.alone):
            places.setdefault(i.key, []).append(i)
        return sorted((o for owners in places.values() for o in _overlaps(owners)), key=lambda o: o.offset)

    def add(self, row: Any) -> bool:
        """Returns whether the record counts: a fenced owner's is void, as it also is for a coordinator that replays the
        topic."""
        kind, epoch, body = row["kind"], row["owner_epoch"], row["body"]
        if epoch is not None and kind not in UNFENCED and not self._owners.admits(epoch):
            return False
        if kind == OWNER_CLAIM:
            if body is not None:
                self._claim(row)
            return True
        row = {**row, "exact": self._count(row)}  # no value is missing right before it
        if kind == "classic_group":
            self._classic_group(row, body)
        elif kind == "classic_member":
            self._classic_member(row, body)
        elif kind == "classic_assignment":
            self._classic_assignment(row, body)
        elif kind in REGISTRY.records:
            self._of_kind(row, REGISTRY.records[kind], body)
        return True

    def unreadable(self, row: Any) -> None:
        """Adds a record that cannot be read. A claim counts by its key alone. What a member holds is certain only until
        the record before: it may have given up all of that here."""
        if row["kind"] == OWNER_CLAIM:
            self._claim(row)
        elif row["kind"] in HOLDING:
            for held in self._open.get(row["sub_id"], {}).values():
                self._cut(held, {**row, "exact": False})

    def _claim(self, row: Any) -> None:
        epoch = claimed_epoch(row["sub_id"])
        if epoch is not None:
            self._owners.claim(epoch)

    def _of_kind(self, row: Any, of: RecordRow, body: Body | None) -> None:
        inspect, member = of.kind.inspect, row["sub_id"]
        if inspect.holds is None:
            return
        if of.record.role is Role.MEMBER:
            if body is None:  # its revision does not count values of the current assignment
                self._hold({**row, "exact": False}, member, {}, -1)
            self._member(member, body)
        elif of.record.role is Role.CURRENT:
            holds = () if body is None else inspect.holds(body, self._members.get(member))
            held = {(h.key, partition): h for h in holds for partition in h.partitions}
            self._hold(row, member, held, -1 if body is None else body["member_epoch"], inspect.place)

    def _member(self, member: str, body: Body | None) -> None:
        if body is None:
            self._members.pop(member, None)
        else:
            self._members[member] = body
            self.clients[member] = body["client_id"]

    # ---- classic groups -------------------------------------------------------------------------------------
    def _classic_group(self, row: Any, body: Body | None) -> None:
        group = self._classic
        if body is None:
            self._classic = _Classic()
            for member in sorted(group.members):
                self._hold(row, member, {}, -1)
            return
        group.type, group.assigned_generation = body["protocol_type"], body["assigned_generation"]
        staged, group.staged = group.staged, {}
        for member, (why, held, generation) in staged.items():
            exact = row["exact"] and why["exact"]
            here = {**why, "offset": row["offset"], "time_ms": row["time_ms"], "exact": exact}
            self._hold(here, member, held if group.type == CONSUMER_TYPE else {}, generation)

    def _classic_member(self, row: Any, body: Body | None) -> None:
        if body is None:
            self._classic.staged.pop(row["sub_id"], None)
            self._hold(row, row["sub_id"], {}, -1)
        self._member(row["sub_id"], body)

    def _classic_assignment(self, row: Any, body: Body | None) -> None:
        """Stages the assignments of a new generation. One for an assigned generation counts at once: it belongs to a
        static member that came back."""
        group, member = self._classic, row["sub_id"]
        group.staged.pop(member, None)
        if body is None:
            self._hold(row, member, {}, -1)
            return
        group.members.add(member)
        given = assigned(body["assignment"]) or {}
        held = {(topic, p): HeldPartitions(topic, topic, ps) for topic, ps in given.items() for p in ps}
        if body["generation"] > group.assigned_generation:
            group.staged[member] = (row, held, body["generation"])
        else:
            self._hold(row, member, held if group.type == CONSUMER_TYPE else {}, body["generation"])

    def _count(self, row: Any) -> bool:
        """Returns whether no value of the row's key is missing right before it. False for a tombstone without a
        revision, for which that is unknown. Counts missing values."""
        key = (row["kind"], row["sub_id"])
        before, revision = self._revisions.get(key, 0), row["revision"]
        if row["body"] is None:
            self._revisions.pop(key, None)
            return revision is not None and revision == before + 1
        if revision is None:
            return True
        if revision > before + 1:
            self.missing += revision - before - 1
            self.complete_ms = max(self.complete_ms or 0, row["time_ms"])
        self._revisions[key] = revision
        return bool(revision == before + 1)

    def _release(self, row: Any, member: str, held: Held) -> None:
        """Ends the member's ownership of every place that `held` lacks."""
        owned = self._open.get(member, {})
        for place in sorted(owned.keys() - held.keys()):
            ended = owned.pop(place)
            ended.to_offset, ended.to_ms, ended.to_why = row["offset"], row["time_ms"], row["why"]
            ended.to_exact = row["exact"] and ended.stretches[-1].until is None
            self._cut(ended, row)

    def _cut(self, held: Interval, row: Any) -> None:
        """Ends the interval's last stretch right before this record, or at the last record before missing ones. One
        that an unreadable record has ended stays so: the member's tombstone tells nothing of it."""
        last, known = held.stretches[-1], self._last_current[held.member_id]
        if last.until is None:
            last.until, last.until_ms = (row["offset"] - 1, row["time_ms"] - 1) if row["exact"] else known

    def _hold(
        self, row: Any, member: str, held: Held, epoch: int, place_name: Callable[[str, int], str] = topic_place
    ) -> None:
        self._release(row, member, held)
        owned = self._open.setdefault(member, {})
        for place in () if row["exact"] else sorted(owned):
            self._cut(owned[place], row)
            owned[place].stretches.append(Stretch(row["offset"], row["time_ms"]))
        earlier = self._last_current.get(member)
        for key in sorted(held.keys() - owned.keys()):
            what = held[key]
            topic = what.name or what.key
            owned[key] = Interval(
                key=key,
                topic=topic,
                partition=key[1],
                member_id=member,
                member_epoch=epoch,
                from_offset=row["offset"],
                from_ms=row["time_ms"],
                from_why=row["why"],
                place=place_name(topic, key[1]),
                alone=what.alone,
                listed=what.listed,
                not_before=row["offset"] - 1 if row["exact"] else None if earlier is None else earlier[0],
                exact=row["exact"],
                stretches=[Stretch(row["offset"], row["time_ms"])],
            )
            self.intervals.append(owned[key])
        self._last_current[member] = (row["offset"], row["time_ms"])
        if row["body"] is None:
            del self._last_current[member]
