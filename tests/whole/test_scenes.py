"""Each scene holds, under several seeds: see scenes/. That they can fail is shown by the bugs planted for them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness.by_cost import cases
from tests.harness.tiers import Seeds
from tests.whole.faults import MOVES, MOVES_SHARE, MOVES_STREAMS
from tests.whole.many import spread
from tests.whole.moving import Step
from tests.whole.scenes import SCENES, act
from tests.whole.scenes.moves import STEPS
from tests.whole.violation import Violation

SEEDS = 10
MUST = {
    "fences_go_down": ("fences went down", 0),
    "large_writes": ("large writes", 0),
    "owners_coordinator_dies": ("groups that go on", 10),
    "strangers_come": ("strangers refused", 0),
    "asked_while_it_starts": ("early answers", 0),
}
"""The figure that a scene is about. Chance decides whether it comes to that: in some of the seeds it must. The second
is the first seed that is played, because seeds before it were not about it."""
MOVE_SEEDS = 12
NIGHTLY = pytest.mark.tier("nightly")
OF_MOVES = {MOVES: "classic", MOVES_SHARE: "share", MOVES_STREAMS: "streams"}
SELDOM = (Step.POSTPONED, Step.SENT, Step.GIVEN_UP)
"""Steps that are over within milliseconds, or that a group need not come to."""


def attempt(which: tuple[str, int]) -> tuple[str, Counter[str]]:
    name, seed = which
    try:
        return "", act(SCENES[name], seed)
    except Violation as exc:
        return f"python -m tests.whole.scenes {name} --seed {seed}: {exc}", Counter()


@pytest.mark.parametrize("name", cases(SCENES, "quick"))
def test_a_scene(name: str, seeds: Seeds) -> None:
    results = list(spread(attempt, [(name, seed) for seed in seeds.of(SEEDS)], 1))
    bad = [problem for problem, _ in results if problem]
    assert not bad, "\n".join(bad)


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", MUST)
def test_a_scene_is_about_something(name: str) -> None:
    """In one of a few seeds, which are always the same. No more are played than it takes."""
    figure, first = MUST[name]
    results = spread(attempt, [(name, seed) for seed in range(first, first + 4 * SEEDS)], 1, each=1)
    assert any(figures[figure] for _, figures in results)


@pytest.mark.tier("all")
@pytest.mark.parametrize("group_id", [MOVES, *(pytest.param(m, marks=NIGHTLY) for m in (MOVES_SHARE, MOVES_STREAMS))])
def test_an_owner_dies_at_each_step_of_a_move(group_id: str) -> None:
    """In some of a few seeds, which are always the same."""
    name = f"owners_die_in_moves_of_a_{OF_MOVES[group_id]}_group"
    results = list(spread(attempt, [(name, seed) for seed in range(MOVE_SEEDS)], 1))
    assert not any(problem for problem, _ in results)
    figures = sum((f for _, f in results), Counter[str]())
    assert not [step for step in STEPS[group_id] if step not in SELDOM and not figures[step]]
