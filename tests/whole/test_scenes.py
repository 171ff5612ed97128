"""Each scene holds, under several seeds: see scenes/. That they can fail is shown by the bugs planted for them."""

from __future__ import annotations

from collections import Counter

import pytest

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


@pytest.mark.parametrize("name", SCENES)
def test_a_scene(name: str) -> None:
    results = list(spread(attempt, [(name, seed) for seed in range(SEEDS)], 2))
    bad = [problem for problem, _ in results if problem]
    assert not bad, "\n".join(bad)
    if name in MUST:
        assert sum((figures for _, figures in results), Counter[str]())[MUST[name]]
