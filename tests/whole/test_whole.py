"""Whole processes under simulation: some seeds hold, and a seed goes the same way every time.

More seeds: `python -m tests.whole.run --seeds 1000`; one with its timeline: `--seed N`. The planted bugs, and how many
seeds each takes: `python -m tests.whole.planted`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

from tests.whole.many import spread
from tests.whole.run import attempt, play

SEEDS = 60


def test_some_seeds() -> None:
    results = list(spread(attempt, range(SEEDS), 2))
    bad = [f"python -m tests.whole.run --seed {seed}: {problem}" for seed, _, problem in results if problem]
    assert not bad, "\n".join(bad[:10])
    figures = sum((found for _, found, _ in results), Counter[str]())
    faults = {name for name in figures if name.startswith("fault: ")}
    assert len(faults) >= 15, faults
    least = {"answers": 200 * SEEDS, "commits": 100 * SEEDS}
    few = {what: figures[what] for what, n in least.items() if figures[what] < n}
    assert not few, "the runs are about something"


def test_a_seed_replays_exactly() -> None:
    def trail(seed: int) -> list[str]:
        told: list[str] = []
        told.append(str(play(seed, tell=told.append).most_common()))
        return told

    assert trail(4711) == trail(4711) != trail(4712)


def test_a_seed_goes_the_same_way_in_another_process() -> None:
    def trail(hash_seed: int) -> str:
        command = [sys.executable, "-m", "tests.whole.run", "--seed", "4711"]
        env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    first = trail(1)
    assert first == trail(2) and "everything held" in first
