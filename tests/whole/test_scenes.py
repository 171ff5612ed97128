"""Each scene holds, under several seeds: see scenes/. That they can fail is shown by the bugs planted for them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness.by_cost import cases
from tests.harness.tiers import Seeds
from tests.whole.many import spread
from tests.whole.scenes import SCENES, act
from tests.whole.violation import Violation

SEEDS = 10
MUST = {
    "fences_go_down": "fences went down",
    "large_writes": "large writes",
    "owners_coordinator_dies": "groups that go on",
    "strangers_come": "strangers refused",
    "asked_while_it_starts": "early answers",
}
"""What a scene is about, and chance decides whether it comes to that: in some of the seeds it must."""


def attempt(which: tuple[str, int]) -> tuple[str, Counter[str]]:
    name, seed = which
    try:
        return "", act(SCENES[name], seed)
    except Violation as exc:
        return f"python -m tests.whole.scenes {name} --seed {seed}: {exc}", Counter()


@pytest.mark.parametrize("name", cases(SCENES))
def test_a_scene(name: str, seeds: Seeds) -> None:
    results = list(spread(attempt, [(name, seed) for seed in seeds.of(SEEDS)], 1))
    bad = [problem for problem, _ in results if problem]
    assert not bad, "\n".join(bad)


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", MUST)
def test_a_scene_is_about_something(name: str) -> None:
    """In one of the first seeds, which are always the same. No more are played than it takes."""
    results = spread(attempt, [(name, seed) for seed in range(4 * SEEDS)], 1, each=1)
    assert any(figures[MUST[name]] for _, figures in results)
