"""One simulated run: a seed chooses members, faults and their times; then faults stop and the groups must settle.

python -m tests.sim.run --seeds 20000 [--first 0]      # or: make sim SEEDS=20000
python -m tests.sim.run --seed 4711                    # one seed, with its trail
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from sidecar.core.vocabulary.errors import InvariantError
from tests.sim.model import Cluster
from tests.sim.play import Play
from tests.sim.world import GROUPS, Violation

FAULTS_MS = 45_000
BOUND_MS = 150_000
"""From the end of faults to settled groups: sessions end, batches, retries of a failed assignor, heartbeats."""
HEARTBEAT_MS = 3_000
"""Within that time every live member has sent a request."""
Plant = Callable[[Cluster], None]


def play(seed: int, plant: Plant | None = None, tracer: Callable[[str], None] | None = None) -> Counter[str]:
    """Returns how often each thing happened. Raises Violation."""
    sim = Cluster(seed)
    if plant is not None:
        plant(sim)
    sim.world.tracer = tracer
    try:
        _run(sim)
    except InvariantError as exc:
        raise Violation(str(exc)) from exc
    sim.world.figures["events"] = sim.world.sched.count
    return sim.world.figures


def _run(sim: Cluster) -> None:
    world, sched = sim.world, sim.world.sched
    Play(sim).begin()
    sched.run_until(sched.now + FAULTS_MS)
    world.faults.on = False
    for node in sim.nodes:
        node.cut_off = False
        node.revive()
    world.trace("faults end")
    bound = sched.now + BOUND_MS
    sched.run_until(sched.now + HEARTBEAT_MS)  # what got lost before may have cost a member its session
    while not sim.settled():
        if sched.now > bound:
            raise Violation(f"not settled {BOUND_MS} ms after the faults: {sim.describe()}")
        sched.run_until(sched.now + 1_000)
    _check_members_stay(sim)
    world.quiet = True
    sched.run_until(sched.now + 1_000)
    if sim.unanswered():  # it may have come during a takeover, and be held for a while
        sched.run_until(sched.now + world.hold_bound_ms)
    if sim.unanswered():
        raise Violation(f"{sim.unanswered()} requests wait for ever")


def _check_members_stay(sim: Cluster) -> None:
    """Runs for more than a session timeout: members that only send heartbeats, mostly under grants, stay members."""
    before = {(c.group_id, c.member_id) for c in sim.clients if not c.ended and not c.leaving}
    sim.world.sched.run_until(sim.world.sched.now + sim.world.config.session_timeout_ms + 1_000)
    members = {(g, m) for g in GROUPS if (group := sim.checks.group(g)) is not None for m in group.members}
    if members != before:
        raise Violation(f"nothing has happened, but the members are {members}; they were {before}")


def attempt(seed: int) -> tuple[int, Counter[str], str]:
    try:
        return seed, play(seed), ""
    except Exception as exc:  # noqa: BLE001 - reported with its seed
        return seed, Counter(), f"{type(exc).__name__}: {exc}"


def summary(figures: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in figures.most_common())


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=1_000)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    a = ap.parse_args()
    if a.seed is not None:
        print(f"{summary(play(a.seed, tracer=print))}: everything held")
        return 0
    start, figures, bad = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, found, problem in pool.map(attempt, range(a.first, a.first + a.seeds), chunksize=20):
            figures += found
            if problem:
                bad += 1
                print(f"seed {seed}: {problem}", flush=True)
    took = time.monotonic() - start
    print(f"{a.seeds} seeds, {summary(figures)}, {took:.0f} s: {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
