"""Ownership intervals and overlaps of a state topic's partition, folded in offset order, for questions about one
group. Pure. The tables of a lake come from gold/, on Spark.

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

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidecar.core.classic.embedded import CONSUMER_TYPE, assigned
from sidecar.core.kinds import KINDS, REGISTRY
from sidecar.core.runtime.inspect import topic_place
from sidecar.core.runtime.records import Role
from sidecar.core.runtime.registry import RecordRow
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.fold import UNFENCED, Claims

OWNING = frozenset({OWNER_CLAIM, "classic_group", "classic_member", "classic_assignment"}) | {
    record.name
    for kind in KINDS
    for record in kind.records
    if kind.inspect.holds is not None and record.role in (Role.MEMBER, Role.CURRENT)
}
"""Kinds of records that determine ownership; the fold uses no others."""
Place = tuple[str, str, int]
"""Group id, key of a `HeldPartitions` (of a classic group the topic's name), partition."""


@dataclass(slots=True)
class Interval:
    """A member's ownership of a partition or task, from one record to another; `to_*` is None while it lasts.
    `place`: the partition or task as text; `alone`, `listed`: fields of `HeldPartitions`."""

    group_id: str
    topic: str
    partition: int
    member_id: str
    client_id: str
    member_epoch: int
    state_partition: int
    from_offset: int
    from_ms: int
    from_why: str
    to_offset: int | None = None
    to_ms: int | None = None
    to_why: str | None = None
    topic_key: str = ""
    place: str = ""
    alone: bool = True
    listed: bool = True
    not_before: int | None = None
    """The last offset at which the member certainly did not own it; None: nothing earlier is known."""
    exact: bool = True
    """Whether ownership began with exactly that record: no value is missing before it."""
    to_exact: bool = True
    stretches: list[Stretch] = field(default_factory=list)

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
    """Two members owned at one offset what only one may own; `proven` if both certainly did. There must be none."""

    group_id: str
    topic: str
    partition: int
    first: str
    second: str
    state_partition: int
    offset: int
    time_ms: int
    proven: bool
    topic_key: str
    place: str


@dataclass(slots=True)
class Stale:
    """A record whose owner epoch is not that of the last claim before it, so fencing failed. There must be none."""

    state_partition: int
    offset: int
    owner_epoch: int
    claimed_epoch: int


@dataclass(slots=True)
class Gap:
    """Values of a key that compaction removed before the audit could read them; `missing`: how many."""

    state_partition: int
    kind: str
    group_id: str
    sub_id: str
    offset: int
    missing: int


@dataclass(slots=True)
class Folded:
    intervals: list[Interval] = field(default_factory=list)
    stale: list[Stale] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def overlaps(self) -> list[Overlap]:
        places: dict[Place, list[Interval]] = {}
        for i in (i for i in self.intervals if i.alone):
            places.setdefault((i.group_id, i.topic_key, i.partition), []).append(i)
        return sorted((o for owners in places.values() for o in _overlaps(owners)), key=lambda o: o.offset)


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
            place = (i.group_id, i.topic, i.partition)
            other = (sure if proven else perhaps)[2]
            yield Overlap(*place, other, member, i.state_partition, offset, s.ms, proven, i.topic_key, i.place)
        later = [s.offset for s in i.stretches[n + 1 : n + 2]] or [EVER if i.to_offset is None else i.to_offset]
        sure = max(sure, (EVER if s.until is None else s.until, i.from_offset, member))
        perhaps = max(perhaps, (later[0], i.from_offset, member))


class HeldPlace(NamedTuple):
    """Fields of a `HeldPartitions`."""

    name: str
    alone: bool = True
    listed: bool = True


Held = dict[Place, HeldPlace]
"""Places that a member owns."""


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
    """The fold of one state partition. `add` takes its rows in offset order; `result` is complete at any time."""

    def __init__(self, state_partition: int) -> None:
        self.p = state_partition
        self.result = Folded()
        self._open: dict[Place, dict[str, Interval]] = {}
        self._held: dict[tuple[str, str], Held] = {}
        self._last_current: dict[tuple[str, str], tuple[int, int]] = {}
        """Offset and time of the last record that determined what a member holds."""
        self._classic: dict[str, _Classic] = {}
        self._members: dict[tuple[str, str], Mapping[str, Any]] = {}
        """Members' own records, decoded."""
        self._clients: dict[tuple[str, str], str] = {}
        self._intervals: dict[tuple[str, str], list[Interval]] = {}
        """All intervals of each member."""
        self._revisions: dict[tuple[str, str, str], int] = {}
        self._owners = Claims()
        self._exact = True
        """Whether no value is missing right before the record that is being added."""

    def add(self, row: Any) -> None:
        kind, tomb = row["kind"], row["tombstone"]
        epoch = row["owner_epoch"]
        if epoch is not None and kind not in UNFENCED and not self._owners.admits(epoch):
            self.result.stale.append(Stale(self.p, row["offset"], epoch, self._owners.claimed))
            return  # void, as it also is for a coordinator that replays the topic
        self._exact = self._count(row)
        body = json.loads(row["body"]) if row["body"] and kind != "schema" else {}
        if kind == OWNER_CLAIM and not tomb:
            self._owners.claim(epoch)
        elif kind == "classic_group":
            self._classic_group(row, body)
        elif kind == "classic_member":
            self._classic_member(row, body)
        elif kind == "classic_assignment":
            self._classic_assignment(row, body)
        elif kind in REGISTRY.records:
            self._of_kind(row, REGISTRY.records[kind], body)

    def _of_kind(self, row: Any, of: RecordRow, body: dict[str, Any]) -> None:
        inspect, tomb = of.kind.inspect, row["tombstone"]
        member = (row["group_id"], row["sub_id"])
        if inspect.holds is None:
            return
        if of.record.role is Role.MEMBER:
            if tomb:
                self._exact = False  # its revision does not count values of the current assignment
                self._hold(row, member, {}, -1)
                self._members.pop(member, None)
            else:
                self._member(member, body)
        elif of.record.role is Role.CURRENT:
            held: Held = {}
            for h in () if tomb else inspect.holds(body, self._members.get(member)):
                for partition in h.partitions:
                    held[(row["group_id"], h.key, partition)] = HeldPlace(h.name, h.alone, h.listed)
            self._hold(row, member, held, -1 if tomb else body["member_epoch"], inspect.place)

    def _member(self, member: tuple[str, str], body: dict[str, Any]) -> None:
        """Keeps a member's record. All its intervals get the latest client id, as in the lake."""
        self._members[member] = body
        if body["client_id"] != self._clients.get(member):
            self._clients[member] = body["client_id"]
            for interval in self._intervals.get(member, ()):
                interval.client_id = body["client_id"]

    # ---- classic groups -------------------------------------------------------------------------------------
    def _classic_group(self, row: Any, body: dict[str, Any]) -> None:
        group_id = row["group_id"]
        if row["tombstone"]:
            former = self._classic.pop(group_id, _Classic())
            for member_id in sorted(former.members):
                self._hold(row, (group_id, member_id), {}, -1)
            return
        group = self._classic.setdefault(group_id, _Classic())
        group.type, group.assigned_generation = body["protocol_type"], body["assigned_generation"]
        staged, group.staged = group.staged, {}
        here = {"offset": row["offset"], "time_ms": row["time_ms"]}
        complete = self._exact
        for member_id, (why, held, _) in staged.items():
            self._exact = complete and why["exact"]
            self._release(why | here, (group_id, member_id), held)
        for member_id, (why, held, generation) in staged.items():
            self._exact = complete and why["exact"]
            self._hold(why | here, (group_id, member_id), held if group.type == CONSUMER_TYPE else {}, generation)

    def _classic_member(self, row: Any, body: dict[str, Any]) -> None:
        member = (row["group_id"], row["sub_id"])
        group = self._classic.setdefault(member[0], _Classic())
        if row["tombstone"]:
            group.staged.pop(member[1], None)
            self._hold(row, member, {}, -1)
            self._members.pop(member, None)
            return
        self._member(member, body)

    def _classic_assignment(self, row: Any, body: dict[str, Any]) -> None:
        """Stages the assignments of a new generation. One for an assigned generation counts at once: it belongs to a
        static member that came back."""
        group_id, member_id = row["group_id"], row["sub_id"]
        group = self._classic.setdefault(group_id, _Classic())
        group.staged.pop(member_id, None)
        if row["tombstone"]:
            self._hold(row, (group_id, member_id), {}, -1)
            return
        group.members.add(member_id)
        given = assigned(bytes.fromhex(body["assignment"])) or {}
        held: Held = {(group_id, topic, p): HeldPlace(topic) for topic, partitions in given.items() for p in partitions}
        if body["generation"] > group.assigned_generation:
            group.staged[member_id] = ({**row, "exact": self._exact}, held, body["generation"])
        else:
            self._hold(row, (group_id, member_id), held if group.type == CONSUMER_TYPE else {}, body["generation"])

    def _count(self, row: Any) -> bool:
        """Returns whether no value of the row's key is missing right before it. False for a tombstone without a
        revision, for which that is unknown. Adds gaps to the result."""
        key = (row["kind"], row["group_id"], row["sub_id"])
        before, revision = self._revisions.get(key, 0), row["revision"]
        if row["tombstone"]:
            self._revisions.pop(key, None)
            return revision is not None and revision == before + 1
        if revision is None:
            return True
        if revision > before + 1:
            self.result.gaps.append(Gap(self.p, *key, row["offset"], revision - before - 1))
        self._revisions[key] = revision
        return bool(revision == before + 1)

    def _release(self, row: Any, member: tuple[str, str], held: Held) -> None:
        """Ends the member's ownership of every place that `held` lacks."""
        before = self._held.get(member, {})
        for place in sorted(before.keys() - held.keys()):
            ended = self._open[place].pop(member[1])
            ended.to_offset, ended.to_ms, ended.to_why = row["offset"], row["time_ms"], row["why"]
            ended.to_exact = self._exact
            self._cut(ended, row, member)
            del before[place]

    def _cut(self, held: Interval, row: Any, member: tuple[str, str]) -> None:
        """Ends the interval's last stretch right before this record, or at the last record before missing ones."""
        last, known = held.stretches[-1], self._last_current[member]
        last.until, last.until_ms = (row["offset"] - 1, row["time_ms"] - 1) if self._exact else known

    def _hold(
        self,
        row: Any,
        member: tuple[str, str],
        held: Held,
        epoch: int,
        place_name: Callable[[str, int], str] = topic_place,
    ) -> None:
        self._release(row, member, held)
        before = self._held.get(member, {})
        for place in () if self._exact else sorted(before):
            still = self._open[place][member[1]]
            self._cut(still, row, member)
            still.stretches.append(Stretch(row["offset"], row["time_ms"]))
        earlier = self._last_current.get(member)
        for place in sorted(held.keys() - before.keys()):
            what = held[place]
            topic = what.name or place[1]
            owners = self._open.setdefault(place, {})
            interval = Interval(
                member[0],
                topic,
                place[2],
                member[1],
                self._clients.get(member, ""),
                epoch,
                self.p,
                row["offset"],
                row["time_ms"],
                row["why"],
                topic_key=place[1],
                place=place_name(topic, place[2]),
                alone=what.alone,
                listed=what.listed,
                not_before=row["offset"] - 1 if self._exact else None if earlier is None else earlier[0],
                exact=self._exact,
                stretches=[Stretch(row["offset"], row["time_ms"])],
            )
            owners[member[1]] = interval
            self.result.intervals.append(interval)
            self._intervals.setdefault(member, []).append(interval)
        self._last_current[member] = (row["offset"], row["time_ms"])
        if row["tombstone"]:
            del self._last_current[member]
        if held:
            self._held[member] = held
        else:
            self._held.pop(member, None)
