"""The interface of assignors. Source: KIP-848 'Assignors', group-coordinator-api PartitionAssignor.

An assignor is a callable `GroupSpec -> member id -> topic id -> partitions`, found by the entry point group
`kafka_group_sidecar.assignors`; docs/assignors.md shows how to write one. The built-in ones are `ArrayAssignor`s:
they see the same group as int arrays, which the group keeps between runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from sidecar.core.records import Partitions
from sidecar.core.topics import Topic
from sidecar.kernel import Ints, by_member, partitions_all
from sidecar.kernel.twin import pack, read


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it. `topic_ids` exist, all of them; `owned` is its last target."""

    rack_id: str | None
    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    owned: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`members` in the group's order; `partitions`: topic id -> count; `homogeneous`: one subscription for all;
    `racks`: topic id -> for each partition the sorted racks of its replicas."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    homogeneous: bool
    racks: Mapping[bytes, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


class AssignorError(Exception):
    """The assignor cannot do it; the group keeps its last target and is tried again."""


Result = Mapping[str, Mapping[bytes, Iterable[int]]]


class Assignor(Protocol):
    """Returns member id -> topic id -> partitions; each partition once at most, only of topics its member
    subscribes to. Runs in a background thread: it must not keep state between calls, and gives the same result
    for the same spec."""

    def __call__(self, spec: GroupSpec) -> Result: ...


@dataclass(frozen=True)
class Layout:
    """Topics and subscriptions of a group as arrays, kept as long as neither changes. Indices: a topic's is its
    place in `topics`, a partition's `off[topic] + partition`, a subscription's its place in `classes`."""

    topics: tuple[Topic, ...]
    classes: tuple[bytes, ...]
    """Sorted topic indices of each subscription, packed as 32-bit integers."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "ids", tuple(t.id for t in self.topics))
        put(self, "index", {t.id: i for i, t in enumerate(self.topics)})
        put(self, "place", {t.name: i for i, t in enumerate(self.topics)})
        put(self, "memo", {})
        put(self, "off", array("i", [0, *accumulate(t.partitions for t in self.topics)]))
        put(self, "id_rank", _id_rank(self.topics))
        self._join_classes()

    ids: tuple[bytes, ...] = field(init=False, compare=False)
    index: dict[bytes, int] = field(init=False, compare=False)
    place: dict[str, int] = field(init=False, compare=False)
    memo: dict[str, object] = field(init=False, compare=False)
    """What others derive from the topics, for as long as those stay."""
    off: array[int] = field(init=False, compare=False)
    id_rank: array[int] = field(init=False, compare=False)
    class_off: array[int] = field(init=False, compare=False)
    class_topics: bytes = field(init=False, compare=False)

    def with_classes(self, classes: tuple[bytes, ...]) -> Layout:
        """The same topics under other subscriptions."""
        new = copy(self)
        object.__setattr__(new, "classes", classes)
        new._join_classes()
        return new

    def _join_classes(self) -> None:
        object.__setattr__(self, "class_off", array("i", [0, *accumulate(len(c) // 4 for c in self.classes)]))
        object.__setattr__(self, "class_topics", b"".join(self.classes))

    def same_places(self, other: Layout) -> bool:
        """Has each partition the same number in both?"""
        return self.ids == other.ids and self.off == other.off


def _id_rank(topics: tuple[Topic, ...]) -> array[int]:
    """Kafka's order of ids: two signed 64-bit numbers (org.apache.kafka.common.Uuid)."""

    def key(i: int) -> tuple[int, int]:
        raw = topics[i].id
        return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)

    rank = array("i", bytes(4 * len(topics)))
    for place, i in enumerate(sorted(range(len(topics)), key=key)):
        rank[i] = place
    return rank


class MemberDetails(Protocol):
    @property
    def rack_id(self) -> str | None: ...

    @property
    def instance_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """What one run is about. `members`: id -> index; `class_of`: member -> subscription; `owner`: partition -> member
    or -1, the last target without what no longer exists."""

    members: Mapping[str, int]
    details: Mapping[str, MemberDetails]
    layout: Layout
    class_of: array[int]
    owner: Ints

    def spec(self) -> GroupSpec:
        """The same as mappings."""
        lay = self.layout
        csr, parts = by_member(self.owner, len(self.members))
        owned = partitions_all(csr, parts, lay.off, lay.ids, array("i", self.members.values()))
        topic_ids = [tuple(lay.ids[t] for t in read(c)) for c in lay.classes]
        members = {
            m: MemberSpec(self.details[m].rack_id, self.details[m].instance_id, topic_ids[self.class_of[i]], had)
            for (m, i), had in zip(self.members.items(), owned, strict=True)
        }
        counts = {t.id: t.partitions for t in lay.topics}
        return GroupSpec(members, counts, len(lay.classes) <= 1, {t.id: t.racks for t in lay.topics})


def owners_of(problem: Problem, result: Result) -> bytearray:
    """An assignor's result as owners by partition. Raises AssignorError for what no group may get."""
    lay = problem.layout
    owner = array("i", [-1]) * lay.off[-1]
    wanted = [set(read(c)) for c in lay.classes]
    for member_id, topics in result.items():
        i = problem.members.get(member_id)
        if i is None:
            raise AssignorError(f"{member_id} is no member")
        for topic_id, ps in topics.items():
            t = lay.index.get(topic_id)
            if t is None or t not in wanted[problem.class_of[i]]:
                raise AssignorError(f"{member_id} does not subscribe to topic {topic_id!r}")
            low, high = lay.off[t], lay.off[t + 1]
            for p in ps:
                if not 0 <= p < high - low:
                    raise AssignorError(f"{lay.topics[t].name} has no partition {p}")
                if owner[low + p] != -1:
                    raise AssignorError(f"{lay.topics[t].name}-{p} is given to two members")
                owner[low + p] = i
    return bytearray(owner.tobytes())


class ArrayAssignor(ABC):
    """One that works on arrays. Callable as any other, too."""

    @abstractmethod
    def owners(self, problem: Problem) -> Ints:
        """New owner of each partition, -1 for none."""

    def __call__(self, spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
        problem = problem_of(spec)
        csr, parts = by_member(self.owners(problem), len(problem.members))
        lay = problem.layout
        all_of = partitions_all(csr, parts, lay.off, lay.ids, array("i", problem.members.values()))
        return dict(zip(problem.members, all_of, strict=True))


def problem_of(spec: GroupSpec) -> Problem:
    """Raises AssignorError where a member subscribes to a topic that is not there."""
    topics = tuple(Topic(t, "", spec.racks.get(t) or ((),) * n) for t, n in spec.partitions.items())
    place = {t.id: i for i, t in enumerate(topics)}
    classes: dict[bytes, int] = {}
    class_of = array("i")
    for m in spec.members.values():
        missing = [t for t in m.topic_ids if t not in place]
        if missing:
            raise AssignorError(f"Members are subscribed to topic {missing[0].hex()} which doesn't exist")
        class_of.append(classes.setdefault(bytes(pack(sorted(place[t] for t in m.topic_ids))), len(classes)))
    lay = Layout(topics, tuple(classes))
    owner = array("i", [-1]) * lay.off[-1]
    for i, m in enumerate(spec.members.values()):
        for topic_id, ps in m.owned.items():
            t = place.get(topic_id)
            for p in ps if t is not None else ():
                if t is not None and p < topics[t].partitions:
                    owner[lay.off[t] + p] = i
    return Problem({m: i for i, m in enumerate(spec.members)}, spec.members, lay, class_of, owner)
