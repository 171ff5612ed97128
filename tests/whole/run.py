"""One simulated run of whole processes: a seed chooses who comes, what goes wrong and when; then the faults end, and
everything must settle.

python -m tests.whole.run --seeds 1000 [--first 0]
python -m tests.whole.run --seed 4711              # one seed, with its timeline (timeline.py)
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.whole.damage import repair
from tests.whole.faults import Faults
from tests.whole.loop import virtual_time
from tests.whole.many import quiet, spread
from tests.whole.timeline import LastLines, standing
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

START_MS = 60_000
FAULTS_MS = 30_000
BOUND_MS = 120_000
LOOK_MS, STORED_MS = 200, 1_000
AT_LEAST_MS = 3_000
"""Milliseconds until everybody has noticed what has happened last."""
CALM_MS = 8_000
"""Longer than a session."""
AGAIN_MS = 10_000
SETTLED = "settled in k heartbeats: "
OUT = Path("out/sim")
"""The folder with the timelines of failing seeds."""
SHOWN = 60
"""Lines of a timeline that are printed, too."""
PATIENCE = ("ownership.follow_leader_ms", "ownership.rebalance_wait_ms", "limits.broker_silence_ms")
PATIENCE_MS = ((0, 0, 0), (1_000, 2_000, 2_000), (10_000, 30_000, 2_000))
"""The last ones are the defaults. With them few partitions move back before the faults are over, and an owner that is
cut off knows it soon."""
MORE_KINDS: dict[int, tuple[str, ...]] = {3: ("streams",), 7: ("share",)}
EACH_KIND = 8
"""The divisor of seeds whose remainder selects those with kinds of groups that are not always served. Others go the
same way as if there were none."""
Plant = Callable[[World], None]


def seeds_with(kind: str, count: int, first: int = 0) -> list[int]:
    """The next seeds that have groups of this kind."""
    every = (seed for seed in itertools.count(first) if kind in MORE_KINDS.get(seed % EACH_KIND, ()))
    return list(itertools.islice(every, count))


def on_stage(world: World, act: Callable[[World], None]) -> None:
    """Play this in virtual time; what fails is told, and how everything stood then."""
    with virtual_time(world.universe):
        try:
            act(world)
        except Exception as exc:
            world.say("VIOLATION", str(exc))
            for line in standing(world) if world.tell is not None else ():
                world.say("", line)
            raise
        finally:
            world.bury()


def play(seed: int, plant: Plant | None = None, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """Plays a seed, and returns how often each thing has happened. Raises Violation."""
    world = World(seed, tell, authorizer=None)
    world.more.update(zip(PATIENCE, PATIENCE_MS[seed % len(PATIENCE_MS)], strict=True))
    world.kinds = MORE_KINDS.get(seed % EACH_KIND, ())
    if plant is not None:
        plant(world)
    world.serve_kinds()
    on_stage(world, _run)
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
    if faults.patterns_stored:
        world.store_patterns("g.*")
        universe.run_until(universe.now_ms + STORED_MS)
    for group_id in faults.groups:
        world.judge.figures[f"runs with {group_id}"] += 1
        for _ in range(rng.randrange(2, 4)):
            faults.come(group_id)
    faults.begin()
    universe.run_until(universe.now_ms + FAULTS_MS)
    faults.end()
    repair(world)
    _settle(world)
    _calm(world)


def _settle(world: World) -> None:
    """Until every group is stable, and nobody is missed. How many heartbeats each group took is a figure."""
    universe, figures = world.universe, world.judge.figures
    ended = universe.now_ms
    took = dict.fromkeys(world.groups(), 0.0)

    def missing() -> str:
        for group_id in took:
            if world.unsettled(group_id):
                took[group_id] = universe.now_ms - ended
        return world.settled() or world.reconciling()

    while universe.now_ms < ended + AT_LEAST_MS:
        missing()
        universe.run_until(universe.now_ms + LOOK_MS)
    until(world, BOUND_MS, missing)
    for group_id, ms in took.items():
        if group_id in world.judge.moving.homes:
            figures["ms to settle groups that move"] += int(ms)  # members of theirs may have sessions of 45 s
            continue
        heartbeat_ms = max(c.habits.heartbeat_ms for c in world.clients if c.habits.group_id == group_id)
        figures[f"{SETTLED}{math.ceil(ms / heartbeat_ms)}"] += 1
    figures["ms to settle"] = int(universe.now_ms - ended)


def until(world: World, bound_ms: float, missing: Callable[[], str]) -> None:
    universe = world.universe
    until = universe.now_ms + bound_ms
    while problem := missing():
        if universe.now_ms > until:
            raise Violation(f"not within {bound_ms / 1000:g} s: {problem}")
        universe.run_until(universe.now_ms + LOOK_MS)
        world.start_the_stopped()


def _calm(world: World) -> None:
    """Checks that nothing changes for longer than a session in which nothing happens any more."""
    universe = world.universe
    epochs, moving = dict(world.judge._epochs), world.judge.moving
    generations = moving.generations()
    universe.run_until(universe.now_ms + CALM_MS)
    world.judge.at_the_end()
    if world.judge._epochs != epochs:
        raise Violation(f"nothing has happened, but the epochs are {world.judge._epochs}; they were {epochs}")
    if moving.generations() != generations:
        told = f"at the brokers generations are {moving.generations()}; they were {generations}"
        raise Violation(f"nothing has happened, but {told}")
    until(world, AGAIN_MS, world.settled)  # partitions may have followed their leaders once more


@dataclass(frozen=True)
class Attempt:
    """`problem`: what was violated, empty if nothing; then there is a timeline, too."""

    seed: int
    figures: Counter[str]
    problem: str = ""
    timeline: str = ""


def attempt(seed: int) -> Attempt:
    try:
        return Attempt(seed, play(seed))
    except Exception as exc:  # noqa: BLE001 - told with its seed
        problem, last = _problem(exc), LastLines()
        try:
            play(seed, tell=last)  # once more, and now with every word
        except Exception as again:  # noqa: BLE001 - the same one, or the replay is not exact
            if _problem(again) != problem:
                problem += f"; but in the replay: {_problem(again)}"
        else:
            problem += "; but not in the replay"
        return Attempt(seed, Counter(), problem, last.text(seed, problem))


def _problem(exc: Exception) -> str:
    return str(exc) if isinstance(exc, Violation) else f"{type(exc).__name__}: {exc}"


def told(figures: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in figures.most_common() if not what.startswith(SETTLED))


def settled_in(figures: Counter[str]) -> str:
    """Returns how soon groups are stable when the faults have ended, over all groups of all seeds."""
    by_k = sorted((int(what.removeprefix(SETTLED)), n) for what, n in figures.items() if what.startswith(SETTLED))
    each = [k for k, n in by_k for _ in range(n)]
    if not each:
        return "nothing settled"
    p50, p99 = each[len(each) // 2], each[min(len(each) - 1, len(each) * 99 // 100)]
    return f"settled in k heartbeats: p50 {p50}, p99 {p99}, max {each[-1]} ({len(each):,} groups)"


def keep(found: Attempt, directory: Path = OUT) -> str:
    """Writes the timeline. What is to be printed: the violation, how to replay it, and the end of the timeline."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"seed-{found.seed}.txt"
    path.write_text(found.timeline)
    end = found.timeline.splitlines()[-SHOWN:]
    head = f"seed {found.seed}: {found.problem}\n    python -m tests.whole.run --seed {found.seed}    # or see {path}"
    return "\n    | ".join([head, *end])


def _replay(seed: int) -> int:
    try:
        figures = play(seed, tell=print)
    except Violation as exc:
        print(f"seed {seed}: {exc}")
        return 1
    print(f"{told(figures)}; {settled_in(figures)}: everything held")
    return 0


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=100)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--kind", help="play only seeds that have groups of this kind: streams, share")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    a = ap.parse_args()
    quiet()
    if a.seed is not None:
        return _replay(a.seed)
    start, figures, bad = time.monotonic(), Counter[str](), 0
    seeds = list(range(a.first, a.first + a.seeds)) if a.kind is None else seeds_with(a.kind, a.seeds, a.first)
    for found in spread(attempt, seeds, a.jobs):
        figures += found.figures
        if found.problem:
            bad += 1
            print(keep(found), flush=True)
    print(f"whole processes: {a.seeds} seeds, {told(figures)}, {time.monotonic() - start:.0f} s: {bad} violations")
    print(settled_in(figures))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
