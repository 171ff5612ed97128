"""One run of a share assignor: a snapshot of the group in, a new table out. Pure, and safe in any thread."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from sidecar.assign.layout import Layout
from sidecar.assign.share import ShareArrayAssignor, ShareAssignor, ShareProblem, holders_of
from sidecar.core.modern import assignor_run as modern
from sidecar.core.modern.target_table import MemberTable, MemberTargets
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.config import SHARE
from sidecar.core.share.group import Member, ShareGroup
from sidecar.core.share.records import Kind
from sidecar.native.twin import pack, read


@dataclass(frozen=True, slots=True)
class ShareRun(modern.RunInput):
    """Input of a run. `assignable`: the only partitions that may be assigned."""

    kind = SHARE
    member_record = Kind.TARGET_MEMBER

    members: Mapping[str, Member]
    topic_names: frozenset[str]
    assignable: Partitions
    target: MemberTargets[MemberTable]


@dataclass(frozen=True, slots=True)
class ShareOutput(modern.RunOutput):
    covers: bool
    """Whether the target has all assignable partitions."""


def snapshot(turn: Turn, group: ShareGroup, assignor: str) -> ShareRun:
    """Returns the input of a run. Costs a few copies of references."""
    return ShareRun(
        group.group_id,
        turn.next_run(),
        group.epoch,
        assignor,
        turn.image,
        group.members.copy(),
        group.subscribed_topics(),
        group.assignable(turn.image),
        group.target.frozen(),
    )


def run(inp: ShareRun, assignor: ShareAssignor) -> ShareOutput:
    """Runs the assignor. Its exceptions propagate."""
    problem = problem_from(inp)
    if isinstance(assignor, ShareArrayAssignor):
        csr, parts = assignor.holders(problem)
    else:
        csr, parts = holders_of(problem, assignor(problem.spec()))
    table = MemberTable(problem.layout, tuple(problem.members), problem.members, csr, parts)
    changed, moved = [], 0
    for member_id, now in zip(problem.members, table.all(tuple(problem.members)), strict=True):
        had = inp.target.get(member_id)
        if had is None or _as_sets(had) != _as_sets(now):
            changed.append(member_id)
            moved += sum(len(set(ps).difference((had or {}).get(t, ()))) for t, ps in now.items())
    return ShareOutput(table, tuple(changed), moved, set(read(parts)) == set(read(problem.allowed)))


def problem_from(inp: ShareRun) -> ShareProblem:
    # In the order of ids: the same group gets the same target in any order of joins, before and after a takeover.
    members = sorted(inp.members)
    by_name = inp.image.by_name
    layout = Layout.of(tuple(by_name[n] for n in sorted(inp.topic_names) if n in by_name))
    # By all names, also of missing topics: so does Kafka decide whether all members have the same subscription.
    classes: dict[frozenset[str], int] = {}
    class_of = array("i", [classes.setdefault(frozenset(inp.members[m].topic_names), len(classes)) for m in members])
    held = [indices(layout, inp.target.of(m)) for m in members]
    return ShareProblem(
        {m: i for i, m in enumerate(members)},
        inp.members,
        layout.with_classes(tuple(_topics_of(names, layout) for names in classes)),
        class_of,
        array("i", indices(layout, inp.assignable)),
        array("i", [0, *accumulate(map(len, held))]),
        array("i", [q for part in held for q in part]),
    )


def _topics_of(names: Iterable[str], layout: Layout) -> bytes:
    return bytes(pack(sorted({layout.place[n] for n in names if n in layout.place})))


def indices(layout: Layout, partitions: Partitions) -> list[int]:
    """Returns the ascending indices of these partitions in the layout, without those that do not exist."""
    places = []
    for topic_id, ps in partitions.items():
        t = layout.index.get(topic_id)
        if t is not None:
            low, high = layout.off[t], layout.off[t + 1]
            places += [low + p for p in ps if low + p < high]
    return sorted(places)


def without(table: MemberTable, assignable: Partitions) -> MemberTable:
    """Returns the table without partitions that may not be assigned any more; the same object if there are none."""
    kept = set(indices(table.layout, assignable))
    csr, parts = read(table.csr), read(table.parts)
    if kept.issuperset(parts):
        return table
    rows = {m: [q for q in parts[csr[i] : csr[i + 1]] if q in kept] for m, i in table.index.items()}
    return MemberTable.of_parts(table.layout, rows)


def _as_sets(parts: Partitions) -> dict[bytes, set[int]]:
    return {t: set(ps) for t, ps in parts.items() if ps}
