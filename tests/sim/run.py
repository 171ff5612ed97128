"""One simulated run: a seed chooses members, faults and their times; then faults stop and the groups must settle.

python -m tests.sim.run --seeds 20000 [--first 0]      # or: make sim SEEDS=20000
python -m tests.sim.run --seed 4711                    # one seed, its trail told
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from sidecar.core.errors import InvariantError
from tests.core.world import topic
from tests.sim.client import Client
from tests.sim.model import SIDECARS, Cluster
from tests.sim.node import Node
from tests.sim.world import GROUPS, Faults, Violation

FAULTS_MS = 45_000
BOUND_MS = 150_000
"""From the end of faults to settled groups: sessions end, batches, retries of a failed assignor, heartbeats."""
MEMBERS = 8
Plant = Callable[[Cluster], None]


class Play:
    """What happens to the cluster while faults are on."""

    def __init__(self, sim: Cluster) -> None:
        self.sim, self.world = sim, sim.world
        self.rng = sim.world.rng
        self.counts = [5, 3, 2]
        """Partitions of the topics t0 to t2."""
        self.made = 0
        self.choose()

    def choose(self) -> None:
        rng, world = self.rng, self.world
        world.faults = Faults(
            drop=rng.choice((0, 0.02, 0.15)),
            duplicate=rng.choice((0, 0.02, 0.1)),
            slow=rng.choice((0, 0.05, 0.3)),
            append_fails=rng.choice((0, 0, 0.02)),
            append_lost=rng.choice((0, 0, 0.02)),
            assignor_fails=rng.choice((0, 0, 0.3)),
            hangs_up=rng.choice((0, 0, 0.05)),
            stalls=rng.choice((0, 0, 0.15)),
            breaks=rng.choice((0, 0, 0.004)),
        )
        world.link_ms = rng.choice((0, 0, rng.randint(1, 20)))
        world.asks_access = rng.random() < 0.3
        world.set_config(
            assignment_interval_ms=rng.choice((0, 1_000, 3_000)),
            assignor_offload_enable=rng.random() < 0.6,
            assignors=rng.choice((("uniform", "range"), ("range",), ("flaky", "uniform"))),
            assignor_timeout_ms=rng.choice((1_000, 30_000)),
            join_wait_ms=rng.choice((0, 500, 2_000)),
        )

    def begin(self) -> None:
        self.sim.set_topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(self.counts)))
        for _ in range(self.rng.randint(1, 6)):
            self.join()
        self.world.sched.at(500, self.act)

    def act(self) -> None:
        if not self.world.faults.on:
            return
        self.world.sched.at(self.rng.randint(200, 2_500), self.act)
        what = self.rng.random()
        for share, action in ACTIONS:
            what -= share
            if what < 0:
                action(self)
                return

    # ---- members ----------------------------------------------------------------------------------------------
    def join(self) -> None:
        rng, clients = self.rng, self.sim.clients
        group_id = rng.choice((GROUPS[0], GROUPS[0], *GROUPS))
        if sum(not c.gone for c in clients) >= MEMBERS:
            return
        self.made += 1
        names = tuple(sorted(rng.sample(["t0", "t1", "t2"], rng.randint(1, 3))))
        regex = rng.choice((None, None, "t[01]"))
        instance = f"i{rng.randrange(3)}" if rng.random() < 0.3 else None
        if any(c.instance_id == instance and c.group_id == group_id and not c.gone for c in clients):
            instance = None
        c = Client(
            self.world,
            self.sim.fronts,
            self.sim.checks.no_two_owners,
            group_id,
            f"m{self.made}",
            None if regex else names,
            regex,
            instance,
            node=rng.randrange(SIDECARS),
            terse=rng.random() < 0.5,
        )
        self.sim.add(c)
        self.world.say(f"{c.member_id} comes to {group_id}")

    def _anybody(self) -> Client | None:
        present = [c for c in self.sim.clients if not c.gone]
        return self.rng.choice(present) if present else None

    def leave(self) -> None:
        c = self._anybody()
        if c is not None:
            c.leave(-2 if c.instance_id and self.rng.random() < 0.6 else -1)
            self.world.say(f"{c.member_id} leaves {c.leaving}")

    def die(self) -> None:
        """Its session will end."""
        c = self._anybody()
        if c is not None:
            c.gone = True
            self.world.say(f"{c.member_id} dies")

    # ---- topics and settings ------------------------------------------------------------------------------------
    def change_topics(self) -> None:
        rng, counts = self.rng, self.counts
        counts[rng.randrange(3)] += 1
        kinds = [(i + 1, f"t{i}", n) for i, n in enumerate(counts)]
        if rng.random() < 0.2:
            kinds.append((9, "t01", 2))
        if rng.random() < 0.2:
            kinds[0] = (rng.choice((1, 7)), "t0", counts[0])  # made anew under another id
        if rng.random() < 0.1:
            kinds.pop(1)
        self.sim.set_topics(*(topic(*k) for k in kinds))
        self.world.say(f"topics {kinds}")

    def change_settings(self) -> None:
        rng = self.rng
        self.sim.set_config(
            assignment_interval_ms=rng.choice((0, 1_000, 3_000)), assignor_offload_enable=rng.random() < 0.5
        )

    # ---- sidecars -----------------------------------------------------------------------------------------------
    def _some_sidecar(self) -> Node:
        return self.rng.choice(self.sim.nodes)

    def crash(self) -> None:
        node, back_ms = self._some_sidecar(), self.rng.randint(500, 8_000)
        node.crash()
        self.world.sched.at(back_ms, node.revive)
        self.world.say(f"sidecar {node.name} crashes for {back_ms} ms")

    def pause(self) -> None:
        node = self._some_sidecar()
        node.pause(self.rng.randint(200, 9_000))
        self.world.say(f"sidecar {node.name} stands still until {node.paused_until}")

    def cut_off(self) -> None:
        """One sidecar does not hear the brokers' group; or none does, as it has no coordinator for a while."""
        node, for_ms = self._some_sidecar(), self.rng.randint(500, 8_000)
        for n in self.sim.nodes if self.rng.random() < 0.2 else (node,):
            n.cut_off = True
            self.world.sched.at(for_ms, lambda n=n: setattr(n, "cut_off", False))  # type: ignore[misc]
            self.world.say(f"sidecar {n.name} is cut off from the brokers for {for_ms} ms")

    def skew(self) -> None:
        node = self._some_sidecar()
        node.skew += self.rng.choice((-3_600_000, -2_000, 2_000, 3_600_000))
        self.world.say(f"wall clock of sidecar {node.name}: {node.skew}")

    def compact(self) -> None:
        for log in self.world.logs:
            log.compact(self.rng)
        self.world.say("compaction")

    def move(self) -> None:
        """One partition, or all."""
        node, world = self._some_sidecar(), self.world
        which = self.rng.randrange(2 * len(world.owners))
        owners = tuple(node.name if p == which or which >= len(world.owners) else o for p, o in enumerate(world.owners))
        world.appoint(owners)
        world.say(f"ownership moves: {owners}")


ACTIONS: tuple[tuple[float, Callable[[Play], None]], ...] = (
    (0.30, Play.join),
    (0.10, Play.leave),
    (0.06, Play.die),
    (0.08, Play.change_topics),
    (0.10, Play.crash),
    (0.08, Play.pause),
    (0.08, Play.cut_off),
    (0.08, Play.skew),
    (0.05, Play.compact),
    (0.04, Play.move),
    (0.04, Play.change_settings),
)
"""How often each happens."""


def play(seed: int, plant: Plant | None = None, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """What has happened how often. Raises Violation."""
    sim = Cluster(seed)
    if plant is not None:
        plant(sim)
    sim.world.tell = tell
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
    world.say("faults end")
    bound = sched.now + BOUND_MS
    while not sim.settled():
        if sched.now > bound:
            raise Violation(f"not settled {BOUND_MS} ms after the faults: {sim.describe()}")
        sched.run_until(sched.now + 1_000)
    _calm(sim)
    world.quiet = True
    sched.run_until(sched.now + 1_000)
    if sim.unanswered():  # it may have come during a takeover, and be held for a while
        sched.run_until(sched.now + world.hold_bound_ms)
    if sim.unanswered():
        raise Violation(f"{sim.unanswered()} requests wait for ever")


def _calm(sim: Cluster) -> None:
    """Longer than a session: members that go on as they are, mostly under grants, stay."""
    before = {(c.group_id, c.member_id) for c in sim.clients if not c.gone and not c.leaving}
    sim.world.sched.run_until(sim.world.sched.now + sim.world.config.session_timeout_ms + 1_000)
    members = {(g, m) for g in GROUPS if (group := sim.checks.group(g)) is not None for m in group.members}
    if members != before:
        raise Violation(f"nothing has happened, but the members are {members}; they were {before}")


def attempt(seed: int) -> tuple[int, Counter[str], str]:
    try:
        return seed, play(seed), ""
    except Exception as exc:  # noqa: BLE001 - told with its seed
        return seed, Counter(), f"{type(exc).__name__}: {exc}"


def told(figures: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in figures.most_common())


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=1_000)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    a = ap.parse_args()
    if a.seed is not None:
        print(f"{told(play(a.seed, tell=print))}: everything held")
        return 0
    start, figures, bad = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, found, problem in pool.map(attempt, range(a.first, a.first + a.seeds), chunksize=20):
            figures += found
            if problem:
                bad += 1
                print(f"seed {seed}: {problem}", flush=True)
    took = time.monotonic() - start
    print(f"{a.seeds} seeds, {told(figures)}, {took:.0f} s: {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
