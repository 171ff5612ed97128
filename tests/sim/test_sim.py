"""A thousand seeds hold; a seed replays exactly; and each planted bug is found.

More seeds: `make sim SEEDS=20000`. One seed with its trail: `python -m tests.sim.run --seed N`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.harness.by_cost import cases, seeds_for
from tests.harness.seeds import too_few
from tests.harness.tiers import Seeds
from tests.sim.planted import PLANTED, Bug, Patch
from tests.sim.planted_classic import PLANTED_CLASSIC
from tests.sim.run import attempt, play
from tests.sim.world import Violation

SEEDS = 1_000
ENOUGH = 1_000
"""Seeds in which a planted bug must have shown."""
ALL_PLANTED = {**PLANTED, **PLANTED_CLASSIC}


LEAST = {
    "events": 1_000,
    "answers": 50,
    "answers under grants": 10,
    "takeovers": 3,
    "broken turns": 0.1,
    "classic rebalances": 2,
    "groups now consumer": 0.2,
    "groups now classic": 0.1,
}
"""For each seed, on average: the runs are about something."""
AT_A_TIME = 25


def test_a_thousand_seeds(seeds: Seeds) -> None:
    wanted = seeds.of(SEEDS, quick=15)
    results = list(_spread(wanted))
    bad = [f"python -m tests.sim.run --seed {seed}: {problem}" for seed, _, problem in results if problem]
    assert not bad, "\n".join(bad[:10])
    figures = sum((found for _, found, _ in results), Counter[str]())
    assert not too_few(figures, LEAST, len(wanted))


def _spread(wanted: range) -> Iterator[tuple[int, Counter[str], str]]:
    if len(wanted) <= AT_A_TIME * 4:
        yield from map(attempt, wanted)
        return
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(attempt, wanted, chunksize=AT_A_TIME)


def test_a_seed_replays_exactly() -> None:
    def trail(seed: int) -> list[str]:
        lines: list[str] = []
        lines.append(str(play(seed, tracer=lines.append).most_common()))
        return lines

    assert trail(4711) == trail(4711) != trail(4712)


@pytest.mark.tier("test")
def test_seeds_replay_exactly_in_another_process() -> None:
    """A run does not depend on the order of a set of strings, which is another one in each process."""

    def figures(hash_seed: int) -> str:
        command = [sys.executable, "-m", "tests.sim.run", "--seeds", "60"]
        env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        return out.rpartition(", ")[0]

    assert figures(1) == figures(2)


@pytest.mark.parametrize("bug", cases(ALL_PLANTED, "test", lambda b: b.__name__))
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    found = ""
    for seed in seeds_for(bug.__name__, ENOUGH):
        try:
            with monkeypatch.context() as patch:
                play(seed, plant=lambda sim: bug(patch, sim))
        except Violation as exc:
            found = f"seed {seed}: {exc}"
            if re.search(ALL_PLANTED[bug], found):
                return
    raise AssertionError(f"{bug.__name__} was not found in {ENOUGH} seeds, but: {found or 'nothing'}")
