"""One simulated run of whole processes: a seed chooses who comes, what goes wrong and when; then the faults end, and
everything must settle.

python -m tests.whole.run --seeds 1000 [--first 0]
python -m tests.whole.run --seed 4711              # one seed, with its timeline
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.whole.faults import GROUPS, Faults
from tests.whole.loop import virtual_time
from tests.whole.many import quiet, spread
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

START_MS = 60_000
FAULTS_MS = 30_000
BOUND_MS = 120_000
CALM_MS = 8_000
"""Longer than a session."""
AGAIN_MS = 10_000
Plant = Callable[[World], None]


def play(seed: int, plant: Plant | None = None, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """What has happened how often. Raises Violation."""
    world = World(seed, tell)
    if plant is not None:
        plant(world)
    with virtual_time(world.universe):
        try:
            _run(world)
        finally:
            world.bury()
    figures = world.judge.figures
    figures["events"] = world.universe.events
    figures["callbacks"] = sum(p.callbacks for p in world.loops())
    figures["claims"] = sum(part.claims for part in world.judge.fold.parts)
    figures["records"] = world.judge.fold.records
    return figures


def _run(world: World) -> None:
    universe, rng = world.universe, world.rng
    for n in NODES:
        universe.later(rng.uniform(0, 2_000), lambda n=n: world.start_sidecar(n))  # type: ignore[misc]
    universe.run_until(2_000)
    until(world, START_MS, lambda: "" if world.ready() else str({n: s.problems for n, s in world.sidecars.items()}))
    world.judge.figures["ms to ready"] = int(universe.now_ms)
    faults = Faults(world)
    for group_id in GROUPS:
        for _ in range(rng.randrange(2, 4)):
            faults.come(group_id)
    faults.begin()
    universe.run_until(universe.now_ms + FAULTS_MS)
    faults.end()
    ended = universe.now_ms
    universe.run_until(ended + 3_000)
    until(world, BOUND_MS, world.settled)
    world.judge.figures["ms to settle"] = int(universe.now_ms - ended)
    _calm(world)


def until(world: World, bound_ms: float, missing: Callable[[], str]) -> None:
    universe = world.universe
    until = universe.now_ms + bound_ms
    while problem := missing():
        if universe.now_ms > until:
            raise Violation(f"not within {bound_ms / 1000:g} s: {problem}")
        universe.run_until(universe.now_ms + 200)
        world.start_the_stopped()


def _calm(world: World) -> None:
    """Nothing happens any more, so nothing changes, for longer than a session."""
    universe = world.universe
    epochs = dict(world.judge._epochs)
    universe.run_until(universe.now_ms + CALM_MS)
    world.judge.at_the_end()
    if world.judge._epochs != epochs:
        raise Violation(f"nothing has happened, but the epochs are {world.judge._epochs}; they were {epochs}")
    until(world, AGAIN_MS, world.settled)  # partitions may have followed their leaders once more


def attempt(seed: int) -> tuple[int, Counter[str], str]:
    try:
        return seed, play(seed), ""
    except Exception as exc:  # noqa: BLE001 - told with its seed
        return seed, Counter(), f"{type(exc).__name__}: {exc}"


def told(figures: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in figures.most_common())


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=100)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    a = ap.parse_args()
    quiet()
    if a.seed is not None:
        print(f"{told(play(a.seed, tell=print))}: everything held")
        return 0
    start, figures, bad = time.monotonic(), Counter[str](), 0
    for seed, found, problem in spread(attempt, range(a.first, a.first + a.seeds), a.jobs):
        figures += found
        if problem:
            bad += 1
            print(f"seed {seed}: {problem}\n    python -m tests.whole.run --seed {seed}", flush=True)
    print(f"{a.seeds} seeds, {told(figures)}, {time.monotonic() - start:.0f} s: {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
