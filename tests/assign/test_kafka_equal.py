"""Same results as Kafka's UniformAssignor and RangeAssignor on a JVM, compiled and in Python; the twins agree."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import sidecar.assign.range as range_module
import sidecar.assign.uniform as uniform_module
from sidecar import native as kernel
from sidecar.assign import BUILT_IN
from sidecar.assign.layout import ArrayAssignor
from sidecar.native import twin
from tests.assign.oracle import Case, Oracle, random_case

pytestmark = pytest.mark.tier("test")  # Kafka's own assignors run on a JVM

SEEDS = 200
EDGES = {
    "no topics": Case([3], [[]], {"a": (None, 0, {}), "b": (None, 0, {})}),
    "more members than partitions": Case([2], [[0]], {f"m{i}": (None, 0, {}) for i in range(5)}),
    "one owner of everything": Case(
        [10, 10], [[0, 1]], {"a": (None, 0, {0: tuple(range(10)), 1: tuple(range(10))}), "b": (None, 0, {})}
    ),
    "subscription shrank": Case(
        [6, 6], [[0], [0, 1]], {"a": (None, 0, {1: (0, 1, 2)}), "b": (None, 1, {0: (0, 1, 2, 3, 4, 5)})}
    ),
    "nobody shares a topic": Case([4, 3], [[0], [1]], {"a": (None, 0, {}), "b": (None, 1, {})}),
    "one rich subscriber": Case([30, 1], [[0, 1], [1]], {"a": (None, 0, {0: tuple(range(30))}), "b": (None, 1, {})}),
    "instance ids before member ids": Case([7], [[0]], {"a": ("z", 0, {}), "b": (None, 0, {}), "c": ("y", 0, {})}),
    "ids beyond ASCII": Case([9], [[0]], {"\uffee": (None, 0, {}), "\U0001f600": (None, 0, {}), "ä": (None, 0, {})}),
    "the extra ones go to the last": Case(
        [7], [[0]], {"a": (None, 0, {0: (0, 1)}), "b": (None, 0, {0: (2, 3)}), "c": (None, 0, {})}
    ),
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    o = Oracle()
    yield o
    o.close()


@pytest.fixture(params=["compiled", "python"])
def assignors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, ArrayAssignor]:
    if request.param == "python":
        monkeypatch.setattr(uniform_module, "kernel", twin.uniform)
        monkeypatch.setattr(range_module, "kernel", twin.range_)
    else:
        assert kernel.COMPILED, "no compiler was there at install: the compiled kernels are not tested"
    return dict(BUILT_IN)


def compare(
    oracle: Oracle, assignors: dict[str, ArrayAssignor], case: Case, name: str
) -> dict[str, dict[str, list[int]]]:
    answer = oracle.ask(case.question(name))
    spec = case.spec(answer["members"], answer["topics"])
    ours = assignors[name](spec)
    numbered = {i: str(n) for n, i in enumerate(case.ids)}
    plain = {m: {numbered[t]: list(ps) for t, ps in parts.items() if ps} for m, parts in ours.items()}
    assert {m: p for m, p in plain.items() if p} == {m: p for m, p in answer["result"].items() if p}
    return plain


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_random_cases(oracle: Oracle, assignors: dict[str, ArrayAssignor], name: str) -> None:
    for seed in range(SEEDS):
        case = random_case(random.Random(seed))
        first = compare(oracle, assignors, case, name)
        again = case.with_owned(first)
        compare(oracle, assignors, again, name)
        rng = random.Random(seed)
        if len(again.members) > 1:
            del again.members[rng.choice(list(again.members))]
            used = sorted({c for _, c, _ in again.members.values()})
            again.members = {m: (i, used.index(c), o) for m, (i, c, o) in again.members.items()}
            again.classes = [again.classes[c] for c in used]
            there = {t for c in again.classes for t in c}
            again.members = {
                m: (i, c, {t: p for t, p in o.items() if t in there}) for m, (i, c, o) in again.members.items()
            }
            compare(oracle, assignors, again, name)


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases(oracle: Oracle, assignors: dict[str, ArrayAssignor], name: str, edge: str) -> None:
    compare(oracle, assignors, EDGES[edge], name)
