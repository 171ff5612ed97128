"""One run of an assignor for a consumer group: a snapshot of the group in, a new table out (modern/assignor_run.py)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, filterfalse

from sidecar.assign.layout import ArrayAssignor, Layout, Problem, owners_of
from sidecar.assign.spec import Assignor
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.records import Kind, RegexRecord
from sidecar.core.consumer.target_table import Table, TargetAssignment
from sidecar.core.modern.assignor_run import RunInput, RunOutput
from sidecar.core.modern.subscriptions import Subscription
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.native import by_member, changed, lookup
from sidecar.native.twin import pack, read


@dataclass(frozen=True, slots=True)
class CachedLayout:
    """A layout and its inputs; the group keeps it from run to run. `image_serial`: that of its topics. `packed`: each
    subscription's topics as numbers, and the resolved regex that they include."""

    image_serial: int
    names: frozenset[str]
    layout: Layout
    class_of: Mapping[Subscription, int]
    packed: Mapping[Subscription, tuple[RegexRecord | None, bytes]]


@dataclass(frozen=True, slots=True)
class ConsumerRun(RunInput):
    kind = CONSUMER
    member_record = Kind.TARGET_MEMBER

    members: Mapping[str, Member]
    subscriptions: Mapping[str, Subscription]
    names: frozenset[str]
    regexes: Mapping[str, RegexRecord]
    target: TargetAssignment
    cached: CachedLayout | None


@dataclass(frozen=True, slots=True)
class ConsumerOutput(RunOutput):
    table: Table
    cached: CachedLayout


def snapshot(
    group: ConsumerGroup, cached: CachedLayout | None, image: TopicImage, assignor: str, run_id: int
) -> ConsumerRun:
    """Returns the input of a run. Costs a few copies of references; `copy` is quick where `dict()` is not, after a key
    was deleted."""
    return ConsumerRun(
        group.group_id,
        run_id,
        group.epoch,
        assignor,
        image,
        group.members.copy(),
        group.subscriptions.of.copy(),
        group.subscribed_topics(),
        dict(group.regexes),
        group.target.frozen(),
        cached,
    )


def run(inp: ConsumerRun, assignor: Assignor) -> ConsumerOutput:
    """Runs the assignor. Its exceptions propagate."""
    cached, problem = problem_from(inp)
    if isinstance(assignor, ArrayAssignor):
        owner = assignor.owners(problem)
    else:
        owner = owners_of(problem, assignor(problem.spec()))
    table = Table.of(cached.layout, problem.members, owner)
    flags, moved = changed(problem.owner, owner, len(problem.members))
    for m in _first_or_shrunk(inp.target, problem):
        flags[problem.members[m]] = 1
    return ConsumerOutput(table, tuple(compress(problem.members, flags)), moved, cached)


def problem_from(inp: ConsumerRun) -> tuple[CachedLayout, Problem]:
    # In the order of ids: the same group gets the same target in any order of joins, before and after a takeover.
    members = sorted(inp.members)
    subs = list(map(inp.subscriptions.__getitem__, members))
    cached = _layout(inp, dict.fromkeys(subs))
    index = dict(zip(members, range(len(members)), strict=True))
    class_of = array("i", bytes(lookup(subs, cached.class_of)))
    return cached, Problem(index, inp.members, cached.layout, class_of, inp.target.owners_on(cached.layout, index))


def _layout(inp: ConsumerRun, subs: Mapping[Subscription, None]) -> CachedLayout:
    """Returns the cached layout if it still holds, else a new one that keeps its valid parts."""
    cached = inp.cached
    if cached is None or cached.image_serial != inp.image.serial or cached.names != inp.names:
        by_name = inp.image.by_name
        ordered = sorted(n for n in inp.names if n in by_name)
        cached = CachedLayout(inp.image.serial, inp.names, Layout.of(tuple(by_name[n] for n in ordered)), {}, {})
    place = cached.layout.place
    packed: dict[Subscription, tuple[RegexRecord | None, bytes]] = {}
    for sub in subs:
        regex = inp.regexes.get(sub.regex) if sub.regex else None
        had = cached.packed.get(sub)
        if had is None or had[0] is not regex:
            names = sub.names if regex is None else {*sub.names, *regex.topics}
            # A set: a record of the state topic may name a topic twice, and the kernels want each once.
            had = (regex, bytes(pack(sorted({place[n] for n in names if n in place}))))
        packed[sub] = had
    classes: dict[bytes, int] = {}
    class_of = {sub: classes.setdefault(p[1], len(classes)) for sub, p in packed.items()}
    layout = cached.layout if cached.layout.classes == tuple(classes) else cached.layout.with_classes(tuple(classes))
    return CachedLayout(cached.image_serial, cached.names, layout, class_of, packed)


def _first_or_shrunk(old: TargetAssignment, problem: Problem) -> set[str]:
    """Returns members without a target so far, and members whose last target has partitions that no longer exist. Their
    targets are written in any case."""
    table = old.table
    if table is None or old.own:
        members = {m for m in problem.members if m not in old}
    else:
        members = set(filterfalse(table.index.__contains__, problem.members))
    if table is not None and not old.own and table.layout.same_places(problem.layout):
        return members
    csr, _ = by_member(problem.owner, len(problem.members))
    now, was = read(csr), read(table.csr) if table is not None else ()
    for m, i in problem.members.items():
        if m in old.own:
            before = sum(map(len, old.of(m).values()))
        elif table is not None and m in table.index:
            at = table.index[m]
            before = was[at + 1] - was[at]
        else:
            continue
        if before != now[i + 1] - now[i]:
            members.add(m)
    return members
