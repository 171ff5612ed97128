"""One run: the problem that an assignor sees, and what becomes of its result."""

from __future__ import annotations

from dataclasses import replace

from sidecar.assign.simple import SIMPLE
from sidecar.core.modern.target_table import MemberTable, MemberTargets
from sidecar.core.runtime.records import Partitions
from sidecar.core.share.assignor_run import ShareRun, indices, problem_from, run, without
from sidecar.core.share.group import Member
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.native.twin import read
from tests.core.share.world import topic, topic_id

A, B = topic_id(1), topic_id(2)
IMAGE = TopicImage().next([topic(1, "a", 3), topic(2, "b", 2)])[0]


def run_of(members: dict[str, tuple[str, ...]], assignable: Partitions, **target: Partitions) -> ShareRun:
    names = frozenset(n for topics in members.values() for n in topics)
    made = {m: Member(m, topic_names=topics) for m, topics in members.items()}
    targets: MemberTargets[MemberTable] = MemberTargets(None, dict(target))
    return ShareRun("g", 1, 5, "simple", IMAGE, made, names, assignable, targets)


def test_members_and_topics_are_in_the_order_of_their_names() -> None:
    problem = problem_from(run_of({"z": ("b",), "m": ("b", "a"), "n": ("a", "b")}, {B: (1,), A: (0, 2)}))
    assert list(problem.members) == ["m", "n", "z"]
    assert [t.name for t in problem.layout.topics] == ["a", "b"]
    assert list(read(problem.allowed)) == [0, 2, 4]
    assert list(problem.class_of) == [0, 0, 1]


def test_the_last_target_is_shown_as_far_as_it_exists() -> None:
    problem = problem_from(run_of({"m": ("a",), "n": ("a",)}, {A: (0, 1, 2)}, m={A: (1, 7), topic_id(9): (0,)}))
    assert (list(problem.held_off), list(problem.held)) == ([0, 1, 1], [1])


def test_members_without_a_target_are_written_though_they_get_nothing() -> None:
    out = run(run_of({"m": ("a",), "n": ("a",)}, {A: (0,)}, m={A: (0,)}, n={A: (0,)}), SIMPLE)
    assert (out.changed, out.moved) == ((), 0)
    out = run(run_of({"m": ("a",)}, {}), SIMPLE)
    assert (out.changed, out.moved) == (("m",), 0)


def test_what_is_new_to_a_member_is_counted_as_moved() -> None:
    out = run(run_of({"m": ("a",), "n": ("a",)}, {A: (0, 1, 2)}, m={A: (0, 1, 2)}, n={}), SIMPLE)
    assert set(out.changed) == {"m", "n"} and out.moved == 1
    assert sorted(p for m in "mn" for p in (out.table.get(m) or {})[A]) == [0, 1, 2]


def test_it_says_whether_all_that_may_be_assigned_is() -> None:
    assert run(run_of({"m": ("a",)}, {A: (0, 2)}), SIMPLE).covers
    assert run(run_of({"m": ("a",)}, {}), SIMPLE).covers
    assert not run(run_of({"m": ("a",), "n": ("b",)}, {A: (0, 1)}), lambda spec: {"m": {A: (0,)}}).covers


def test_the_same_input_gives_the_same_table() -> None:
    inp = run_of({f"m{i}": ("a", "b") for i in range(4)}, {A: (0, 1, 2), B: (0, 1)})
    other = replace(inp, members=dict(reversed(list(inp.members.items()))))
    assert run(inp, SIMPLE).table.all(("m0", "m1", "m2", "m3")) == run(other, SIMPLE).table.all(
        ("m0", "m1", "m2", "m3")
    )


def test_a_result_is_cut_down_to_what_is_initialised_now() -> None:
    table = run(run_of({"m": ("a",), "n": ("a",)}, {A: (0, 1, 2)}), SIMPLE).table
    assert without(table, {A: (0, 1, 2), B: (0,)}) is table
    cut = without(table.renamed({"n": None}), {A: (0,)})
    assert list(cut.index) == ["m"] and set(cut.get("m") or {}) <= {A}
    assert indices(cut.layout, cut.get("m") or {}) in ([], [0])


def test_who_names_a_missing_topic_has_another_subscription() -> None:
    """As at Kafka, which compares names: the members of each topic share that one then, and not all topics together."""
    both = {A: (0, 1, 2), B: (0, 1)}
    same = run(run_of({"m": ("a", "b"), "n": ("a", "b")}, both, m=both), SIMPLE).table
    other = run(run_of({"m": ("a", "b"), "n": ("a", "b", "missing")}, both, m=both), SIMPLE).table
    assert [len((other.get("n") or {}).get(t, ())) for t in (A, B)] == [1, 1]
    assert [len((same.get("n") or {}).get(t, ())) for t in (A, B)] != [1, 1]
