"""The interface of share assignors: what the author of a plug-in imports, and a share group as int arrays.

A share assignor is a callable `ShareSpec -> member id -> topic id -> partitions`, found by the entry point group
`kafka_group_sidecar.share_assignors`. In contrast to consumer groups, a partition can have several members. Only
partitions whose share state is initialised may be assigned. Source: KIP-932, Kafka's ShareGroupPartitionAssignor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from sidecar.assign.layout import Layout, MemberDetails, subscriptions_of
from sidecar.assign.spec import AssignorError, MemberSpec, Partitions, Result, plain
from sidecar.native import Ints, gather, partitions_all
from sidecar.native.groups_twin import Csr
from sidecar.native.twin import pack, read


@dataclass(frozen=True, slots=True)
class ShareSpec:
    """The input of a share assignor. `members` are in the order of their ids; `partitions` maps a topic id to its
    partition count; `assignable` maps it to the sorted partitions that may be assigned; `homogeneous`: all members have
    one subscription; `racks` maps a topic id to the sorted racks of each partition."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    assignable: Partitions
    homogeneous: bool
    racks: Mapping[bytes, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


class ShareAssignor(Protocol):
    """Returns member id -> topic id -> partitions. Each of them is assignable, and occurs once at most for a member
    that subscribes to its topic. It runs in a background thread: it must keep no state between calls and must give
    the same result for the same spec."""

    def __call__(self, spec: ShareSpec) -> Result: ...


@dataclass(frozen=True, slots=True)
class ShareProblem:
    """The input of one run. `members`: id -> index, in the order of ids; `class_of`: member -> subscription;
    `allowed`: the ascending indices of the partitions that may be assigned. The last target is `held`: member `m` had
    `held[held_off[m]:held_off[m + 1]]`, ascending."""

    members: Mapping[str, int]
    details: Mapping[str, MemberDetails]
    layout: Layout
    class_of: array[int]
    allowed: Ints
    held_off: Ints
    held: Ints

    def spec(self) -> ShareSpec:
        """The same input as mappings."""
        layout = self.layout
        had = holdings(self, (self.held_off, self.held))
        topic_ids = [tuple(layout.ids[t] for t in read(c)) for c in layout.classes]
        members = {
            m: MemberSpec(self.details[m].rack_id, self.details[m].instance_id, topic_ids[self.class_of[i]], had[m])
            for m, i in self.members.items()
        }
        allowed = pack([0, len(read(self.allowed))])
        (assignable,) = partitions_all(allowed, self.allowed, layout.off, layout.ids, pack([0]))
        counts = {t.id: t.partitions for t in layout.topics}
        racks = {t.id: t.racks for t in layout.topics}
        return ShareSpec(members, counts, assignable, len(layout.classes) <= 1, racks)


def holdings(problem: ShareProblem, table: tuple[Ints, Ints]) -> dict[str, dict[bytes, tuple[int, ...]]]:
    """A table of (offsets, partitions) by member as mappings."""
    layout, members = problem.layout, problem.members
    return dict(zip(members, partitions_all(*table, layout.off, layout.ids, pack([*members.values()])), strict=True))


def holders_of(problem: ShareProblem, result: Result) -> Csr:
    """A plug-in's result as (offsets, partitions) by member. Raises AssignorError for what no member may get."""
    layout = problem.layout
    may = set(read(problem.allowed))
    wanted = [set(read(c)) for c in layout.classes]
    given: list[set[int]] = [set() for _ in problem.members]
    for member_id, topics in result.items():
        i = problem.members.get(member_id)
        if i is None:
            raise AssignorError(f"{member_id} is no member")
        for topic_id, ps in topics.items():
            t = layout.index.get(topic_id)
            if t is None or t not in wanted[problem.class_of[i]]:
                raise AssignorError(f"{member_id} does not subscribe to topic {topic_id!r}")
            for p in ps:
                q = layout.off[t] + p
                if not 0 <= p < layout.off[t + 1] - layout.off[t] or q not in may:
                    raise AssignorError(f"{layout.topics[t].name}-{p} may not be assigned")
                if q in given[i]:
                    raise AssignorError(f"{layout.topics[t].name}-{p} is given to {member_id} twice")
                given[i].add(q)
    return pack([0, *accumulate(map(len, given))]), pack([q for part in given for q in sorted(part)])


class ShareArrayAssignor(ABC):
    """A share assignor that works on arrays. It can be called with a `ShareSpec` like any other, too."""

    @abstractmethod
    def holders(self, problem: ShareProblem) -> Csr:
        """The new (offsets, partitions) by member."""

    def __call__(self, spec: ShareSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
        problem = share_problem_of(spec)
        return holdings(problem, self.holders(problem))


def share_problem_of(spec: ShareSpec) -> ShareProblem:
    """A spec as arrays. Raises AssignorError where a member subscribes to a topic that does not exist."""
    layout, class_of = subscriptions_of(spec.members.values(), spec.partitions, spec.racks)
    held_off, held = gather([plain(m.owned) for m in spec.members.values()], layout.index, layout.off)
    _, allowed = gather([plain(spec.assignable)], layout.index, layout.off)
    return ShareProblem(
        {m: i for i, m in enumerate(spec.members)}, spec.members, layout, class_of, allowed, held_off, held
    )
