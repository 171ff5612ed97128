"""A group as int arrays: what the built-in assignors work on, and how a plug-in's mappings become arrays and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from sidecar.assign.spec import AssignorError, GroupSpec, MemberSpec, Result
from sidecar.assign.topic import Topic
from sidecar.native import Ints, by_member, partitions_all
from sidecar.native.twin import pack, read


class TopicArrays:
    """The topics of a group as arrays. A topic's index is its place in `topics`; a partition's index is
    `off[topic] + partition`. Compared by identity, so that others can keep what they derive from it."""

    def __init__(self, topics: tuple[Topic, ...]) -> None:
        self.topics = topics
        self.ids = tuple(t.id for t in topics)
        self.index = {t.id: i for i, t in enumerate(topics)}
        self.place = {t.name: i for i, t in enumerate(topics)}
        self.off = array("i", [0, *accumulate(t.partitions for t in topics)])
        self.id_rank = _id_rank(topics)


def _id_rank(topics: tuple[Topic, ...]) -> array[int]:
    """Kafka's order of ids: two signed 64-bit numbers (org.apache.kafka.common.Uuid)."""

    def key(i: int) -> tuple[int, int]:
        raw = topics[i].id
        return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)

    rank = array("i", bytes(4 * len(topics)))
    for place, i in enumerate(sorted(range(len(topics)), key=key)):
        rank[i] = place
    return rank


class Layout:
    """Topics and subscriptions of a group as arrays, kept as long as neither changes. `classes` holds the sorted
    topic indices of each distinct subscription, packed as 32-bit integers; a subscription's index is its place."""

    def __init__(self, arrays: TopicArrays, classes: tuple[bytes, ...]) -> None:
        self.arrays = arrays
        self.topics, self.ids, self.index, self.place = arrays.topics, arrays.ids, arrays.index, arrays.place
        self.off, self.id_rank = arrays.off, arrays.id_rank
        self.classes = classes
        self.class_off = array("i", [0, *accumulate(len(c) // 4 for c in classes)])
        self.class_topics = b"".join(classes)

    @classmethod
    def of(cls, topics: tuple[Topic, ...], classes: tuple[bytes, ...] = ()) -> Layout:
        return cls(TopicArrays(topics), classes)

    def with_classes(self, classes: tuple[bytes, ...]) -> Layout:
        """The same topics under other subscriptions."""
        return Layout(self.arrays, classes)

    def same_places(self, other: Layout) -> bool:
        """Whether each partition has the same index in both layouts."""
        return self.arrays is other.arrays or (self.ids == other.ids and self.off == other.off)


class MemberDetails(Protocol):
    @property
    def rack_id(self) -> str | None: ...

    @property
    def instance_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of one run. `members`: id -> index; `class_of`: member -> subscription; `owner`: partition -> member
    or -1, which is the last target without what no longer exists."""

    members: Mapping[str, int]
    details: Mapping[str, MemberDetails]
    layout: Layout
    class_of: array[int]
    owner: Ints

    def spec(self) -> GroupSpec:
        """The same input as mappings."""
        layout = self.layout
        csr, parts = by_member(self.owner, len(self.members))
        owned = partitions_all(csr, parts, layout.off, layout.ids, array("i", self.members.values()))
        topic_ids = [tuple(layout.ids[t] for t in read(c)) for c in layout.classes]
        members = {
            m: MemberSpec(self.details[m].rack_id, self.details[m].instance_id, topic_ids[self.class_of[i]], had)
            for (m, i), had in zip(self.members.items(), owned, strict=True)
        }
        counts = {t.id: t.partitions for t in layout.topics}
        return GroupSpec(members, counts, len(layout.classes) <= 1, {t.id: t.racks for t in layout.topics})


def owners_of(problem: Problem, result: Result) -> bytearray:
    """A plug-in's result as the owner of each partition. Raises AssignorError for what no group may get."""
    layout = problem.layout
    owner = array("i", [-1]) * layout.off[-1]
    wanted = [set(read(c)) for c in layout.classes]
    for member_id, topics in result.items():
        i = problem.members.get(member_id)
        if i is None:
            raise AssignorError(f"{member_id} is no member")
        for topic_id, ps in topics.items():
            t = layout.index.get(topic_id)
            if t is None or t not in wanted[problem.class_of[i]]:
                raise AssignorError(f"{member_id} does not subscribe to topic {topic_id!r}")
            low, high = layout.off[t], layout.off[t + 1]
            for p in ps:
                if not 0 <= p < high - low:
                    raise AssignorError(f"{layout.topics[t].name} has no partition {p}")
                if owner[low + p] != -1:
                    raise AssignorError(f"{layout.topics[t].name}-{p} is given to two members")
                owner[low + p] = i
    return bytearray(owner.tobytes())


class ArrayAssignor(ABC):
    """An assignor that works on arrays. It can be called with a `GroupSpec` like any other, too."""

    @abstractmethod
    def owners(self, problem: Problem) -> Ints:
        """The new owner of each partition, -1 for none."""

    def __call__(self, spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
        problem = problem_of(spec)
        csr, parts = by_member(self.owners(problem), len(problem.members))
        layout = problem.layout
        all_of = partitions_all(csr, parts, layout.off, layout.ids, array("i", problem.members.values()))
        return dict(zip(problem.members, all_of, strict=True))


def subscriptions_of(
    members: Iterable[MemberSpec], partitions: Mapping[bytes, int], racks: Mapping[bytes, tuple[tuple[str, ...], ...]]
) -> tuple[Layout, array[int]]:
    """The topics of a spec as a layout, and the subscription of each member. Raises AssignorError where a member
    subscribes to a topic that does not exist."""
    topics = tuple(Topic(t, "", racks.get(t) or ((),) * n) for t, n in partitions.items())
    place = {t.id: i for i, t in enumerate(topics)}
    classes: dict[bytes, int] = {}
    known: dict[tuple[bytes, ...], int] = {}
    class_of = array("i")
    for m in members:
        if (c := known.get(m.topic_ids)) is None:
            missing = [t for t in m.topic_ids if t not in place]
            if missing:
                raise AssignorError(f"Members are subscribed to topic {missing[0].hex()} which doesn't exist")
            c = classes.setdefault(bytes(pack(sorted({place[t] for t in m.topic_ids}))), len(classes))
            known[m.topic_ids] = c
        class_of.append(c)
    return Layout.of(topics, tuple(classes)), class_of


def problem_of(spec: GroupSpec) -> Problem:
    """A spec as arrays. Raises AssignorError where a member subscribes to a topic that does not exist."""
    layout, class_of = subscriptions_of(spec.members.values(), spec.partitions, spec.racks)
    owner = array("i", [-1]) * layout.off[-1]
    for i, m in enumerate(spec.members.values()):
        for topic_id, ps in m.owned.items():
            t = layout.index.get(topic_id)
            for p in ps if t is not None else ():
                if t is not None and p < layout.topics[t].partitions:
                    owner[layout.off[t] + p] = i
    return Problem({m: i for i, m in enumerate(spec.members)}, spec.members, layout, class_of, owner)
