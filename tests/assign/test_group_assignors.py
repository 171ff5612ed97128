"""`simple` and `sticky` in the order of production: complete, balanced, sticky, and no member gets what it may not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil

import pytest

from sidecar.assign import SIMPLE, STICKY
from sidecar.assign.share import ShareSpec, holders_of, share_problem_of
from sidecar.assign.spec import AssignorError, MemberSpec
from sidecar.assign.task_spec import (
    AssignmentConfigs,
    MemberTasks,
    Subtopology,
    TaskLayout,
    TaskMemberSpec,
    TaskResult,
    TaskSpec,
    checked,
    task_problem_of,
)
from sidecar.native.twin import read
from sidecar.process import assignors
from tests.core.world import topic_id
from tests.harness.properties import given, settings, st

Held = dict[str, dict[bytes, tuple[int, ...]]]
COUNTS = st.dictionaries(st.integers(1, 5), st.integers(1, 9), min_size=1, max_size=4)


@st.composite
def share_specs(draw: st.DrawFn, same: bool) -> ShareSpec:
    counts = draw(COUNTS)
    pick = st.lists(st.sampled_from(sorted(counts)), min_size=1, unique=True).map(lambda ts: tuple(sorted(ts)))
    one = draw(pick)
    topics = {f"m{i:02}": one if same else draw(pick) for i in range(draw(st.integers(1, 14)))}
    used = {t for ts in topics.values() for t in ts}
    may = {topic_id(t): tuple(p for p in range(counts[t]) if draw(st.integers(0, 9))) for t in sorted(used)}
    members = {m: MemberSpec(None, None, tuple(map(topic_id, ts)), {}) for m, ts in topics.items()}
    return ShareSpec(members, {topic_id(t): counts[t] for t in sorted(used)}, may, len(set(topics.values())) <= 1)


def after(spec: ShareSpec, held: Held, *, without: str = "", more: str = "") -> ShareSpec:
    members = {m: replace(s, owned=held[m]) for m, s in spec.members.items() if m != without}
    if more:
        members[more] = replace(next(iter(spec.members.values())), owned={})
    return replace(spec, members=dict(sorted(members.items())))


def given_out(held: Held) -> Counter[tuple[bytes, int]]:
    return Counter((t, p) for topics in held.values() for t, ps in topics.items() for p in ps)


def size(topics: dict[bytes, tuple[int, ...]]) -> int:
    return sum(map(len, topics.values()))


def check(spec: ShareSpec, held: Held) -> None:
    assert list(held) == list(spec.members)
    for m, topics in held.items():
        assert set(topics) <= set(spec.members[m].topic_ids), "only what a member subscribes to"
        assert all(list(ps) == sorted(set(ps)) for ps in topics.values())
    holders = given_out(held)
    wanted = {(t, p) for m in spec.members.values() for t in m.topic_ids for p in spec.assignable[t]}
    assert set(holders) == wanted, "each partition that may be assigned has a holder, and no other has one"
    for t in spec.partitions:
        subscribers = sum(t in m.topic_ids for m in spec.members.values())
        count = sum(len(ps) for ps in spec.assignable.values()) if spec.homogeneous else len(spec.assignable[t])
        for p in spec.assignable[t]:
            assert holders[t, p] <= ceil(subscribers / count)


def parts(spec: ShareSpec) -> list[int]:
    """Returns the most partitions that each member of a group with one subscription gets."""
    members, count = len(spec.members), sum(map(len, spec.assignable.values()))
    each = ceil(members / count) * count / members if count else 0
    return [ceil(each * (i + 1)) - ceil(each * i) for i in range(members)]


@settings(max_examples=200, deadline=None)
@given(share_specs(same=True))
def test_one_subscription(spec: ShareSpec) -> None:
    held = SIMPLE(spec)
    check(spec, held)
    limits = parts(spec)
    assert max(limits) - min(limits) <= 1
    assert all(size(topics) <= limit for topics, limit in zip(held.values(), limits, strict=True))
    assert SIMPLE(after(spec, held)) == held, "nothing moves if nothing changed"
    joined = after(spec, held, more="m99")
    now = SIMPLE(joined)
    check(joined, now)
    if max(Counter(given_out(held)).values(), default=0) <= 1 and len(joined.members) <= sum(
        map(len, spec.assignable.values())
    ):
        for (m, topics), limit in zip(now.items(), parts(joined), strict=True):
            had = held.get(m, {})
            kept = sum(len(set(ps) & set(had.get(t, ()))) for t, ps in topics.items())
            assert kept == min(size(had), limit), "a member loses what is too much for it, and nothing else"


@settings(max_examples=200, deadline=None)
@given(share_specs(same=False))
def test_different_subscriptions(spec: ShareSpec) -> None:
    held = SIMPLE(spec)
    check(spec, held)
    assert SIMPLE(after(spec, held)) == held, "nothing moves if nothing changed"
    if len(spec.members) > 1:
        left = after(spec, held, without="m00")
        left = replace(left, homogeneous=len({m.topic_ids for m in left.members.values()}) <= 1)
        used = {t for m in left.members.values() for t in m.topic_ids}
        left = replace(
            left,
            partitions={t: n for t, n in left.partitions.items() if t in used},
            assignable={t: ps for t, ps in left.assignable.items() if t in used},
        )
        check(left, SIMPLE(left))


def test_what_may_not_be_assigned_any_more_is_taken() -> None:
    t = topic_id(1)
    spec = ShareSpec({m: MemberSpec(None, None, (t,), {t: (0, 1)}) for m in "ab"}, {t: 2}, {t: (1,)}, True)
    assert SIMPLE(spec) == {"a": {t: (1,)}, "b": {t: (1,)}}


def test_a_group_without_members_or_topics() -> None:
    assert SIMPLE(ShareSpec({}, {}, {}, True)) == {}
    assert SIMPLE(ShareSpec({"a": MemberSpec(None, None, (), {})}, {}, {}, True)) == {"a": {}}
    assert STICKY(TaskSpec({}, {"0": Subtopology(2, True)})) == {}
    assert STICKY(TaskSpec({"a": TaskMemberSpec("p")}, {})) == {"a": MemberTasks()}
    with_none = {"0": Subtopology(0, True), "1": Subtopology(1, True), "2": Subtopology(0, True)}
    assert STICKY(TaskSpec({"a": TaskMemberSpec("p")}, with_none)) == {"a": MemberTasks({"1": (0,)})}


def test_a_topic_that_is_none_is_refused() -> None:
    with pytest.raises(AssignorError, match="doesn't exist"):
        SIMPLE(ShareSpec({"a": MemberSpec(None, None, (topic_id(1),), {})}, {}, {}, True))


@pytest.mark.parametrize(
    "result, said",
    [
        ({"x": {}}, "x is no member"),
        ({"a": {topic_id(2): [0]}}, "does not subscribe"),
        ({"a": {topic_id(1): [1]}}, "may not be assigned"),
        ({"a": {topic_id(1): [3]}}, "may not be assigned"),
        ({"a": {topic_id(1): [-1]}}, "may not be assigned"),
        ({"a": {topic_id(1): [0, 0]}}, "twice"),
    ],
)
def test_a_share_plug_in_that_gives_what_it_may_not(result: dict[str, dict[bytes, list[int]]], said: str) -> None:
    t = topic_id(1)
    spec = ShareSpec({m: MemberSpec(None, None, (t,), {}) for m in "ab"}, {t: 3}, {t: (0, 2)}, True, {t: ((),) * 3})
    problem = share_problem_of(spec)
    assert problem.spec() == spec
    csr, parts_of = holders_of(problem, {m: {t: [2, 0]} for m in "ab"})
    assert (list(memoryview(csr).cast("i")), list(memoryview(parts_of).cast("i"))) == ([0, 2, 4], [0, 2, 0, 2])
    with pytest.raises(AssignorError, match=said):
        holders_of(problem, result)


@st.composite
def task_specs(draw: st.DrawFn) -> TaskSpec:
    sizes = draw(st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=4))
    subtopologies = {str(i): Subtopology(n, stateful) for i, (n, stateful) in enumerate(sizes)}
    processes = draw(st.integers(1, 5))
    members = {
        f"m{i:02}": TaskMemberSpec(f"p{draw(st.integers(1, processes))}") for i in range(draw(st.integers(1, 10)))
    }
    return TaskSpec(members, subtopologies, AssignmentConfigs(draw(st.integers(0, 3))))


def check_tasks(spec: TaskSpec, result: TaskResult) -> None:
    checked(spec, result)
    tasks = sum(s.partitions for s in spec.subtopologies.values())
    most = ceil(tasks / len(spec.members))
    processes = len({m.process_id for m in spec.members.values()})
    standbys = Counter((s, p) for mine in result.values() for s, ps in mine.standby.items() for p in ps)
    for mine in result.values():
        assert sum(map(len, mine.active.values())) <= most
        assert not mine.warmup
    for s, subtopology in spec.subtopologies.items():
        wanted = min(spec.configs.standby_replicas, processes - 1) if subtopology.stateful else 0
        assert all(standbys[s, p] == wanted for p in range(subtopology.partitions))


def held_now(spec: TaskSpec, result: TaskResult) -> TaskSpec:
    members = {m: replace(s, active=result[m].active, standby=result[m].standby) for m, s in spec.members.items()}
    return replace(spec, members=members)


@settings(max_examples=300, deadline=None)
@given(task_specs())
def test_tasks(spec: TaskSpec) -> None:
    first = STICKY(spec)
    check_tasks(spec, first)
    again = STICKY(held_now(spec, first))
    check_tasks(spec, again)
    assert [mine.active for mine in again.values()] == [mine.active for mine in first.values()], "nothing moves"
    joined = held_now(spec, first)
    joined = replace(joined, members={**joined.members, "m99": TaskMemberSpec("p9")})
    now = STICKY(joined)
    check_tasks(joined, now)
    most = ceil(sum(s.partitions for s in spec.subtopologies.values()) / len(joined.members))
    for m, mine in first.items():
        kept = sum(len(set(ps) & set(now[m].active.get(s, ()))) for s, ps in mine.active.items())
        assert kept >= min(sum(map(len, mine.active.values())), most - 1), "only what is too much for a member moves"


def test_a_task_goes_where_its_state_is() -> None:
    """A standby task first, then the highest offset."""
    one = {"0": Subtopology(1, True)}
    members = {m: TaskMemberSpec(m) for m in "abcd"}
    assert STICKY(TaskSpec(members, one))["a"].active == {"0": (0,)}
    members["b"] = replace(members["b"], offsets={"0": {0: 5}})
    members["c"] = replace(members["c"], offsets={"0": {0: 9}})
    assert STICKY(TaskSpec(members, one))["c"].active == {"0": (0,)}
    members["d"] = replace(members["d"], standby={"0": (0,)})
    assert STICKY(TaskSpec(members, one))["d"].active == {"0": (0,)}
    assert STICKY(TaskSpec(members, one, AssignmentConfigs(1)))["c"].standby == {"0": (0,)}


def test_tasks_that_do_not_exist_are_left_out() -> None:
    odd = {"9": (0,), "0": (0, 7, -1)}
    member = TaskMemberSpec("p", active=odd, standby=odd, offsets={"9": {0: 1}, "0": {7: 1, -1: 1, 1: 3}})
    problem = task_problem_of(TaskSpec({"a": member}, {"0": Subtopology(2, True), "1": Subtopology(2, True)}))
    arrays = (problem.had.active, problem.had.standby, problem.hint)
    assert [list(read(a)) for a in arrays] == [[0], [0], [1]]


def test_subtopologies_are_sorted_as_java_does() -> None:
    one = Subtopology(1, True)
    assert TaskLayout({"\uffee": one, "\U0001f600": one, "b": one, "10": one, "9": one}).ids == (
        *("10", "9", "b"),
        *("\U0001f600", "\uffee"),
    )


@pytest.mark.parametrize(
    "result, said",
    [
        ({"x": MemberTasks()}, "x is no member"),
        ({"a": MemberTasks({"0": (0, 2)})}, "there is no task 0_2"),
        ({"a": MemberTasks({"7": (0,)})}, "there is no task 7_0"),
        ({"a": MemberTasks({"0": (0, 1)}), "b": MemberTasks({"0": (0,)})}, "two members"),
        ({"a": MemberTasks({"0": (0, 1)}, {"0": (0,)})}, "twice to process p"),
        ({"a": MemberTasks({"0": (0, 1)}), "b": MemberTasks({}, {"0": (0,)}, {"0": (0,)})}, "twice to process q"),
        ({"a": MemberTasks({"1": (0,)}), "b": MemberTasks({}, {"1": (0,)})}, "has no state"),
        ({"a": MemberTasks({"0": (0, 1)})}, "task 1_0 is given to nobody"),
    ],
)
def test_a_task_plug_in_that_gives_what_it_may_not(result: TaskResult, said: str) -> None:
    members = {"a": TaskMemberSpec("p"), "b": TaskMemberSpec("q")}
    spec = TaskSpec(members, {"0": Subtopology(2, True), "1": Subtopology(1, False)})
    with pytest.raises(AssignorError, match=said):
        checked(spec, result)


def test_they_come_by_name() -> None:
    assert assignors.load(["simple"], assignors.SHARE) == {"simple": SIMPLE}
    assert assignors.load(["sticky"], assignors.STREAMS) == {"sticky": STICKY}
    with pytest.raises(assignors.UnknownAssignor, match="no assignor 'uniform'; there are simple"):
        assignors.load(["uniform"], assignors.SHARE)
