"""Same results as Kafka's SimpleAssignor and StickyTaskAssignor on a JVM, compiled and in Python, one by one.

Kafka's results depend on the order of its hash maps, which JavaOrder computes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from sidecar import native
from sidecar.assign.task_spec import AssignmentConfigs, Subtopology, TaskMemberSpec, TaskProblem, TaskSpec, TaskTable
from sidecar.drill.artifacts import ANCHORS
from sidecar.native import groups_twin
from tests.assign.oracle import Oracle
from tests.assign.share_oracle import ShareCase, kernel_arguments, named, random_share_case, subscribed
from tests.assign.task_oracle import changed_group, in_java_order, plain, question, random_task_spec
from tests.harness.tiers import Seeds

pytestmark = pytest.mark.tier("test")  # Kafka's own assignors run on a JVM

STEPS = 3
FULL = 5_000
"""Groups, each of which is assigned once and then STEPS times after a change: 250 in `test`, 1,500 in `all`."""
SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1")
HEX = [f"{i:032x}" for i in range(9)]
SHARE_EDGES = {
    "no topics": ShareCase([b"a" * 16], [3], [(0, 1, 2)], [()], {"a": (0, {}), "b": (0, {})}),
    "nothing may be assigned": ShareCase([b"a" * 16], [3], [()], [(0,)], {"a": (0, {0: (0, 1)}), "b": (0, {})}),
    "one partition": ShareCase([b"a" * 16], [1], [(0,)], [(0,)], {m: (0, {}) for m in HEX}),
    "all have everything": ShareCase(
        [b"a" * 16], [4], [(0, 1, 2, 3)], [(0,)], {m: (0, {0: (0, 1, 2, 3)}) for m in HEX}
    ),
    "nobody shares a topic": ShareCase(
        [b"a" * 16, b"b" * 16], [4, 2], [(0, 1, 2, 3), (0, 1)], [(0,), (1,)], {"a": (0, {}), "b": (1, {0: (0, 1)})}
    ),
    "a member that is asked twice for a partition": ShareCase(
        [b"a" * 16],
        [8],
        [(0, 1, 4, 7)],
        [(0,), ()],
        {m: (0, {0: had} if had else {}) for m, had in zip("abcde", ((), (1, 6), (2, 7), (2, 5), (4,)), strict=True)}
        | {"f": (1, {})},
    ),
    "a subscription without topics beside another": ShareCase(
        [b"a" * 16], [4], [(0, 1, 2, 3)], [(0,), ()], {"a": (0, {}), "b": (1, {0: (0, 1)}), "c": (0, {})}
    ),
}
ONE = {"0": Subtopology(2, True)}
TASK_EDGES = {
    "more standbys than processes": TaskSpec(
        {"a": TaskMemberSpec("p"), "b": TaskMemberSpec("q")}, ONE, AssignmentConfigs(5)
    ),
    "one process": TaskSpec({m: TaskMemberSpec("p") for m in HEX}, ONE, AssignmentConfigs(1)),
    "no tasks": TaskSpec({"a": TaskMemberSpec("p")}, {"0": Subtopology(0, True)}, AssignmentConfigs(1)),
    "two hold one active task": TaskSpec({m: TaskMemberSpec(m, active={"0": (0, 1)}) for m in HEX[:3]}, ONE),
    "tasks that are none any more": TaskSpec(
        {m: TaskMemberSpec("p", active={"9": (0,), "0": (7,)}, standby={"8": (1,)}) for m in HEX[:2]}, ONE
    ),
    "equal offsets": TaskSpec(
        {m: TaskMemberSpec(m, offsets={"0": {0: 5, 1: 5}}) for m in HEX}, ONE, AssignmentConfigs(2)
    ),
}


@pytest.fixture(scope="module", params=ANCHORS)
def share_oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    o = Oracle(*SMALL, program="ShareOracle", version=request.param)
    yield o
    o.close()


@pytest.fixture(scope="module")
def task_oracle() -> Iterator[Oracle]:
    o = Oracle(*SMALL, program="TaskOracle")
    yield o
    o.close()


@pytest.fixture
def kernels() -> tuple[Any, ModuleType]:
    assert native.COMPILED, "no compiler was there at install: the compiled kernels are not tested"
    return native.groups, groups_twin


def compare_share(oracle: Oracle, kernels: tuple[Any, ...], case: ShareCase) -> dict[str, dict[str, list[int]]]:
    answer = oracle.ask(case.question())
    if "failed" in answer:  # in Kafka a partition that may not be assigned any more can take a member's whole part
        assert case.closed
        return {}
    args = kernel_arguments(case, answer)
    wanted = subscribed(case, answer["result"])
    for kernel in kernels:
        assert named(case, answer["members"], kernel.simple(*args)) == wanted
    return wanted


def compare_tasks(oracle: Oracle, kernels: tuple[Any, ...], spec: TaskSpec) -> Any:
    answer = oracle.ask(question(spec))
    problem = in_java_order(spec, answer["members"])
    for kernel in kernels:
        assert plain(problem, run(kernel, problem)) == answer["result"]
    return answer["result"]


def run(kernel: Any, p: TaskProblem) -> TaskTable:
    had = (p.had.active_off, p.had.active, p.had.standby_off, p.had.standby)
    hints = (p.hint_off, p.hint, p.hint_sums)
    lay = p.layout
    return TaskTable(
        *kernel.sticky(p.proc_off, p.proc_members, lay.off, lay.stateful, *had, *hints, p.standby_replicas)
    )


def test_simple(share_oracle: Oracle, kernels: tuple[Any, ...], seeds: Seeds) -> None:
    for seed in seeds.of(FULL):
        rng = random.Random(seed)
        case = random_share_case(rng)
        for _ in range(1 + STEPS):
            case = case.after(compare_share(share_oracle, kernels, case), rng)


def test_sticky(task_oracle: Oracle, kernels: tuple[Any, ...], seeds: Seeds) -> None:
    for seed in seeds.of(FULL):
        rng = random.Random(seed)
        spec = random_task_spec(rng)
        for _ in range(1 + STEPS):
            spec = changed_group(spec, compare_tasks(task_oracle, kernels, spec), rng)


@pytest.mark.parametrize("edge", SHARE_EDGES)
def test_edges_of_simple(share_oracle: Oracle, kernels: tuple[Any, ...], edge: str) -> None:
    compare_share(share_oracle, kernels, SHARE_EDGES[edge])


@pytest.mark.parametrize("edge", TASK_EDGES)
def test_edges_of_sticky(task_oracle: Oracle, kernels: tuple[Any, ...], edge: str) -> None:
    compare_tasks(task_oracle, kernels, TASK_EDGES[edge])


def test_large_groups(share_oracle: Oracle, task_oracle: Oracle, kernels: tuple[Any, ...]) -> None:
    """1,000 members with 10,000 partitions, and with 3,000 tasks: assigned, and again after a third has gone."""
    rng = random.Random(1)
    ids = [rng.randbytes(16) for _ in range(10)]
    every = tuple(range(1_000))
    case = ShareCase(
        ids, [1_000] * 10, [every] * 10, [tuple(range(10))], {f"{i:04}-{i * i}": (0, {}) for i in range(1_000)}
    )
    result = compare_share(share_oracle, kernels, case)
    members = {m: (0, {int(t): tuple(ps) for t, ps in result[m].items()}) for m in list(case.members)[300:]}
    compare_share(share_oracle, kernels, replace(case, members=members))
    spec = TaskSpec(
        {f"{i:04}-{i * i}": TaskMemberSpec(f"process-{i % 250}") for i in range(1_000)},
        {str(s): Subtopology(1_000, s > 0) for s in range(3)},
        AssignmentConfigs(1),
    )
    compare_tasks(task_oracle, kernels, changed_group(spec, compare_tasks(task_oracle, kernels, spec), rng))
