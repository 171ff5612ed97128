"""The kernels of share and streams groups and their twins give the same, and refuse what is out of range."""

from __future__ import annotations

import random
from array import array
from itertools import accumulate
from typing import Any

import pytest

from sidecar.native import _groups, groups_twin
from sidecar.native.twin import read
from tests.harness.tiers import seeds_of_run


def ints(*values: int) -> array[int]:
    return array("i", values)


def rows(rng: random.Random, members: int, values: int, share: float) -> tuple[array[int], array[int]]:
    """Random values for each member, in any order."""
    of = [rng.sample(range(values), sum(rng.random() < share for _ in range(values))) for _ in range(members)]
    return array("i", [0, *accumulate(map(len, of))]), array("i", [v for mine in of for v in mine])


def share_problem(rng: random.Random) -> tuple[array[int], ...]:
    topics, members = rng.randint(0, 6), rng.choice((0, 1, 2, 5, 30, 300))
    off = array("i", [0, *accumulate(rng.choice((0, 1, 3, 9)) for _ in range(topics))])
    classes = [sorted(rng.sample(range(topics), rng.randint(0, topics))) for _ in range(rng.choice((1, 1, 2, 5)))]
    # In large groups few members are in another class than the first: their lists are gathered class by class.
    often = 0.97 if members == 300 else 0.3
    class_of = array("i", [0 if rng.random() < often else rng.randrange(len(classes)) for _ in range(members)])
    class_off = array("i", [0, *accumulate(map(len, classes))])
    allowed = array("i", [q for q in range(off[-1]) if rng.random() < 0.8])
    held_off, held = rows(rng, members, off[-1], rng.choice((0.0, 0.1, 0.5)))
    walk = array("i", rng.sample(range(off[-1]), rng.randint(0, off[-1])) if rng.random() < 0.5 else ())
    turn = array("i", rng.sample(range(len(held)), len(held)) if rng.random() < 0.5 else ())
    flat = array("i", [t for c in classes for t in c])
    return off, class_off, flat, class_of, allowed, held_off, held, walk, turn


def task_problem(rng: random.Random) -> tuple[Any, ...]:
    members = rng.choice((0, 1, 2, 7, 20, 40))
    sizes = [rng.choice((0, 1, 7, 30)) for _ in range(rng.randint(0, 5))]
    task_off = array("i", [0, *accumulate(sizes)])
    of = rng.sample(range(members), members)
    cuts = sorted(rng.randint(0, members) for _ in range(rng.randint(0, min(members, 9))))
    proc_off = array("i", [0, *cuts, members] if members else [0])
    had = [*rows(rng, members, task_off[-1], 0.01), *rows(rng, members, task_off[-1], rng.choice((0.0, 0.02)))]
    hint_off, hint = rows(rng, members, task_off[-1], rng.choice((0.0, 0.05)))
    sums = array("q", [rng.choice((-1, 0, 7, 2**62)) for _ in hint])
    stateful = array("i", [rng.randint(0, 1) for _ in sizes])
    return proc_off, array("i", of), task_off, stateful, *had, hint_off, hint, sums, rng.choice((0, 1, 2, 5))


def test_twins_agree() -> None:
    for seed in seeds_of_run(300):
        rng = random.Random(seed)
        share, tasks = share_problem(rng), task_problem(rng)
        assert _groups.simple(*share) == groups_twin.simple(*share), seed
        assert _groups.sticky(*tasks) == groups_twin.sticky(*tasks), seed


def anything(rng: random.Random) -> int:
    return rng.choice((0, 1, 2, rng.randrange(9), -1, 2**31, -(2**70), 2**70))


def test_mappings_become_arrays() -> None:
    """Keys and numbers that do not exist are left out; numbers may come in any order, and in any collection."""
    for seed in seeds_of_run(100):
        mappings_become_arrays(random.Random(seed))


def mappings_become_arrays(rng: random.Random) -> None:
    keys = ["a", "b", "10", "none", "ä"]
    off = array("i", [0, *accumulate(rng.choice((0, 1, 3, 9)) for _ in keys)])
    index = {k: i for i, k in enumerate(keys) if k != "none"}
    rows, sums = [], []
    for _ in range(rng.choice((0, 1, 30))):
        some = {k: {anything(rng): rng.choice((0, -5, 2**62)) for _ in range(rng.randrange(9))} for k in keys}
        sums.append(some)
        rows.append({k: rng.choice((tuple, list, set, dict))(some[k]) for k in rng.sample(keys, 3)})
    assert _groups.gather(rows, index, off) == groups_twin.gather(rows, index, off)
    assert _groups.gather_sums(sums, index, off) == groups_twin.gather_sums(sums, index, off)


@pytest.mark.parametrize(
    "rows, index, off, error",
    [
        ([{"a": (0,)}], {"a": 1}, ints(0, 3), ValueError),
        ([{"a": (0,)}], {"a": -1}, ints(0, 3), ValueError),
        ([{"a": (0,)}], {"a": 0}, ints(), ValueError),
        ([{"a": (0,)}], {"a": 0}, ints(0, 3, 2), ValueError),
        ([{"a": 0}], {"a": 0}, ints(0, 3), TypeError),
        ([{"a": ("x",)}], {"a": 0}, ints(0, 3), TypeError),
        ([{"a": (0,)}], {"a": "x"}, ints(0, 3), TypeError),
        ([("a", 0)], {"a": 0}, ints(0, 3), TypeError),
        (({"a": (0,)},), {"a": 0}, ints(0, 3), TypeError),
    ],
)
def test_rows_that_are_none_are_refused(rows: Any, index: Any, off: array[int], error: type[Exception]) -> None:
    with pytest.raises(error):
        _groups.gather(rows, index, off)


@pytest.mark.parametrize(
    "numbers, error", [((0,), TypeError), ({0: "x"}, TypeError), ({"x": 0}, TypeError), ({0: 2**64}, OverflowError)]
)
def test_sums_that_are_none_are_refused(numbers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _groups.gather_sums([{"a": numbers}], {"a": 0}, ints(0, 3))


SHARE = (ints(0, 3), ints(0, 1), ints(0), ints(0, 0), ints(0, 1, 2), ints(0, 2, 3), ints(0, 1, 2), ints(), ints())
SHARE_BAD = {
    "an empty array of topics": (0, ints()),
    "offsets that fall": (0, ints(0, 5, 3)),
    "partitions below 0": (0, ints(0, -3)),
    "no class": (1, ints()),
    "a class beyond its topics": (1, ints(0, 2)),
    "a topic that is none": (2, ints(1)),
    "a member of no class": (3, ints(0, 1)),
    "more members than rows": (3, ints(0, 0, 0)),
    "a partition that is none": (4, ints(0, 3)),
    "a partition below 0": (4, ints(-1)),
    "a partition that may be assigned twice": (4, ints(0, 0)),
    "rows beyond the end": (5, ints(0, 2, 4)),
    "a held partition that is none": (6, ints(0, 1, 3)),
    "a partition held twice": (6, ints(1, 1, 2)),
    "a walk twice through a partition": (7, ints(0, 0)),
    "a walk to no partition": (7, ints(3)),
    "a turn that leaves one out": (8, ints(0, 1)),
    "a turn with one twice": (8, ints(0, 1, 1)),
    "a turn with none": (8, ints(0, 1, 3)),
}
TASKS = (
    *(ints(0, 1, 2), ints(0, 1), ints(0, 2, 3), ints(1, 0)),
    *(ints(0, 1, 2), ints(0, 1), ints(0, 1, 1), ints(2)),
    *(ints(0, 0, 2), ints(0, 1), array("q", [5, 6]), 1),
)
TASKS_BAD = {
    "no process": (0, ints()),
    "processes beyond the members": (0, ints(0, 1, 3)),
    "a member in two processes": (1, ints(0, 0)),
    "a member that is none": (1, ints(0, 2)),
    "no subtopology": (2, ints()),
    "tasks that fall": (2, ints(0, 4, 3)),
    "a subtopology without a flag": (3, ints(1)),
    "rows of too few members": (4, ints(0, 2)),
    "an active task that is none": (5, ints(0, 3)),
    "rows that fall": (6, ints(0, 2, 1)),
    "a standby task below 0": (7, ints(-1)),
    "rows that begin late": (8, ints(1, 1, 2)),
    "an offset of no task": (9, ints(0, 9)),
    "an offset told twice": (9, ints(1, 1)),
    "fewer offsets than tasks": (10, array("q", [5])),
    "standbys below 0": (11, -1),
    "standbys beyond 32 bits": (11, 2**31),
}


def test_what_the_tables_spoil_is_taken() -> None:
    assert _groups.simple(*SHARE) == groups_twin.simple(*SHARE)
    assert _groups.sticky(*TASKS) == groups_twin.sticky(*TASKS)


@pytest.mark.parametrize("what", SHARE_BAD)
def test_a_share_problem_out_of_range_is_refused(what: str) -> None:
    place, value = SHARE_BAD[what]
    args: list[Any] = list(SHARE)
    args[place] = value
    with pytest.raises(ValueError, match="range"):
        _groups.simple(*args)


@pytest.mark.parametrize("what", TASKS_BAD)
def test_a_task_problem_out_of_range_is_refused(what: str) -> None:
    place, value = TASKS_BAD[what]
    args: list[Any] = list(TASKS)
    args[place] = value
    with pytest.raises(ValueError, match="range"):
        _groups.sticky(*args)


def test_a_standby_task_held_twice_is_refused() -> None:
    args: list[Any] = list(TASKS)
    args[6:8] = ints(0, 2, 2), ints(2, 2)
    with pytest.raises(ValueError, match="range"):
        _groups.sticky(*args)


def test_so_many_standbys_that_they_cannot_be_counted_are_refused() -> None:
    """Symptom of a number that overflows: a quota below 0."""
    args: list[Any] = list(TASKS)
    args[11] = 2**31 - 1
    with pytest.raises(ValueError, match="too large"):
        _groups.sticky(*args)
    args[11] = (2**31 - 4) // 2
    assert _groups.sticky(*args) == groups_twin.sticky(*args)


def test_what_is_no_buffer_of_ints_is_refused() -> None:
    with pytest.raises(ValueError, match="32-bit"):
        _groups.simple(b"abc", *SHARE[1:])
    with pytest.raises(ValueError, match="64-bit"):
        _groups.sticky(*TASKS[:10], b"abcd", 1)
    with pytest.raises(TypeError):
        _groups.simple(*SHARE[1:])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        _groups.sticky(*TASKS[:11])  # type: ignore[call-arg]


def test_a_partition_with_many_members_costs_no_more_than_its_members() -> None:
    """No table of members by partitions: 30,000 members of one topic, and 30,000 topics with two members each."""
    one = _groups.simple(
        ints(0, 1),
        ints(0, 1),
        ints(0),
        array("i", bytes(4 * 30_000)),
        ints(0),
        ints(*[0] * 30_001),
        ints(),
        ints(),
        ints(),
    )
    assert list(read(one[0]))[-1] == 30_000
    n = 30_000
    own = array("i", range(n))
    classes = array("i", range(n + 1))
    each = _groups.simple(
        classes, classes, own, array("i", [*range(n), *range(n)]), own, ints(*[0] * (2 * n + 1)), ints(), ints(), ints()
    )
    assert list(read(each[0]))[-1] == 2 * n
