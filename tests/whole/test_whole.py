"""Whole processes under simulation: many seeds hold, and a seed goes the same way every time.

More seeds: `make sim SEEDS=20000`; one with its timeline: `python -m tests.whole.run --seed N`. See
docs/design/simulation.md."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.harness.by_cost import cases
from tests.harness.seeds import too_few
from tests.harness.tiers import Seeds
from tests.whole.many import spread
from tests.whole.planted import PLANTED, Bug, search
from tests.whole.run import attempt, play, settled_in

SEEDS, IN_QUICK, IN_TEST, IN_ALL = 1_000, 2, 30, 100
"""A seed costs about a second. More are played by `make sim`, and in the night."""
LEAST = {
    "events": 10_000,
    "answers": 300,
    "commits": 180,
    "records": 60,
    "claims": 4,
    "members removed for silence": 0.35,
    "Heartbeat: REBALANCE_IN_PROGRESS": 0.8,
    "ConsumerGroupHeartbeat: NOT_COORDINATOR": 2,
    "StreamsGroupHeartbeat: NONE": 5,
    "ShareGroupHeartbeat: NONE": 5,
    "TxnOffsetCommit: NONE": 15,
    "transactions aborted": 2,
}
"""For each seed, on average: the runs are about something."""
EACH_FAULT = 0.05


ENOUGH = 50
"""A fault that must strike less often than this is not judged."""
MANY = 100
"""The number of seeds that is worth a second process. Of fewer only SURE is judged: transactions and faults come in
bursts."""
SURE = ("events", "answers", "commits", "records")


@pytest.mark.timeout(900)
def test_many_seeds(seeds: Seeds) -> None:
    wanted = seeds.of(SEEDS, quick=IN_QUICK, test=IN_TEST, all=IN_ALL)
    results = list(spread(attempt, wanted, 2 if len(wanted) >= MANY else 1))
    bad = [f"python -m tests.whole.run --seed {r.seed}: {r.problem}" for r in results if r.problem]
    assert not bad, "\n".join(bad[:10])
    figures = sum((r.figures for r in results), Counter[str]())
    print(settled_in(figures))
    faults = {what: n for what, n in figures.items() if what.startswith("fault: ")}
    few = too_few(figures, LEAST, len(wanted)) | too_few(
        faults, dict.fromkeys(faults, EACH_FAULT), len(wanted), enough=ENOUGH
    )
    if len(wanted) < MANY:
        few = {what: n for what, n in few.items() if what in SURE}
    assert not few, few
    assert len(faults) >= 20 or len(wanted) < MANY, len(faults)


def test_many_bugs_are_planted() -> None:
    assert len(PLANTED) >= 30


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", cases(PLANTED, "test", lambda b: b.name))
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """In a process of its own: what a run leaves behind is given back."""
    (found,) = spread(search, [bug.name], 1)
    assert found.right, f"{bug.name} was not found in {found.seeds} seeds, but: {found.found}"


@pytest.mark.tier("test")
def test_a_seed_replays_exactly() -> None:
    def trail(seed: int) -> list[str]:
        told: list[str] = []
        told.append(str(play(seed, tell=told.append).most_common()))
        return told

    assert trail(4711) == trail(4711) != trail(4712)


@pytest.mark.tier("test")
def test_who_listens_changes_nothing() -> None:
    """A failing seed is played again for its timeline."""
    assert play(4711, tell=lambda line: None) == play(4711)


@pytest.mark.tier("test")
def test_a_seed_goes_the_same_way_in_another_process() -> None:
    def trail(hash_seed: int) -> str:
        command = [sys.executable, "-m", "tests.whole.run", "--seed", "4711"]
        env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    first = trail(1)
    assert first == trail(2) and "everything held" in first
