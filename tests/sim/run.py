"""One simulated run: a seed chooses members, faults and their times; then faults stop and the group must settle.

python -m tests.sim.run --seeds 20000 [--first 0]      # or: make sim SEEDS=20000
python -m tests.sim.run --seed 4711                    # one seed, its trail told
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from sidecar.core.consumer.group import GroupState
from tests.core.world import topic
from tests.sim.model import GROUP, Client, Cluster, Faults, Violation

FAULTS_MS = 45_000
BOUND_MS = 150_000
"""From the end of faults to a settled group: sessions end, batches, retries of a failed assignor, heartbeats."""
Plant = Callable[[Cluster], None]


def play(seed: int, plant: Plant | None = None, tell: Callable[[str], None] = lambda text: None) -> int:
    """Number of events. Raises Violation."""
    sim = Cluster(seed)
    rng = sim.rng
    if plant is not None:
        plant(sim)
    sim.faults = Faults(
        drop=rng.choice((0, 0.02, 0.15)),
        duplicate=rng.choice((0, 0.02, 0.1)),
        slow=rng.choice((0, 0.05, 0.3)),
        append_fails=rng.choice((0, 0, 0.02)),
        append_lost=rng.choice((0, 0, 0.02)),
        assignor_fails=rng.choice((0, 0, 0.3)),
    )
    sim.set_config(
        assignment_interval_ms=rng.choice((0, 1_000, 3_000)),
        assignor_offload_enable=rng.random() < 0.6,
        assignors=rng.choice((("uniform", "range"), ("range",), ("flaky", "uniform"))),
        assignor_timeout_ms=rng.choice((1_000, 30_000)),
    )
    sim.runs_may_be_late = sim.config.assignor_timeout_ms < 1_500
    counts = [5, 3, 2]
    sim.set_topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(counts)))
    made = 0

    def join() -> None:
        nonlocal made
        if sum(not c.gone for c in sim.clients) < 6:
            made += 1
            names = tuple(sorted(rng.sample(["t0", "t1", "t2"], rng.randint(1, 3))))
            regex = rng.choice((None, None, "t[01]"))
            instance = f"i{rng.randrange(3)}" if rng.random() < 0.3 else None
            if any(c.instance_id == instance and not c.gone for c in sim.clients):
                instance = None
            c = Client(sim, f"m{made}", None if regex else names, regex, instance, node=rng.randrange(3))
            sim.clients.append(c)
            sim.sched.at(1, c.beat)
            tell(f"{c.member_id} comes")

    def act() -> None:
        if not sim.faults.on:
            return
        sim.sched.at(rng.randint(200, 2_500), act)
        what = rng.random()
        node = rng.choice(sim.nodes)
        present = [c for c in sim.clients if not c.gone]
        if what < 0.3:
            join()
        elif what < 0.4 and present:
            c = rng.choice(present)
            c.leaving = -2 if c.instance_id and rng.random() < 0.6 else -1
            c.waiting, c.owned = 0, {}  # it gives up all it has, then says so
            tell(f"{c.member_id} leaves {c.leaving}")
        elif what < 0.46 and present:
            c = rng.choice(present)
            c.gone = True  # it dies: its session will end
            tell(f"{c.member_id} dies")
        elif what < 0.54:
            counts[rng.randrange(3)] += 1
            kinds = [(i + 1, f"t{i}", n) for i, n in enumerate(counts)]
            if rng.random() < 0.2:
                kinds.append((9, "t01", 2))
            if rng.random() < 0.2:
                kinds[0] = (rng.choice((1, 7)), "t0", counts[0])  # made anew under another id
            if rng.random() < 0.1:
                kinds.pop(1)
            sim.set_topics(*(topic(*k) for k in kinds))
            tell(f"topics {kinds}")
        elif what < 0.64:
            node.alive = False
            node.drop("crash")
            node.runs = 0
            back = rng.randint(500, 8_000)
            sim.sched.at(back, lambda: setattr(node, "alive", True))
            tell(f"sidecar {node.name} crashes for {back} ms")
        elif what < 0.72:
            node.paused_until = sim.sched.now + rng.randint(200, 9_000)
            tell(f"sidecar {node.name} stands still until {node.paused_until}")
        elif what < 0.8:
            node.cut_off = True
            sim.sched.at(rng.randint(500, 8_000), lambda: setattr(node, "cut_off", False))
            tell(f"sidecar {node.name} is cut off from the brokers")
        elif what < 0.88:
            node.skew += rng.choice((-3_600_000, -2_000, 2_000, 3_600_000))
            tell(f"wall clock of sidecar {node.name}: {node.skew}")
        elif what < 0.93:
            sim.log.compact(rng)
            tell("compaction")
        elif what < 0.97:
            sim.owner = node.name
            tell(f"ownership moves to sidecar {node.name}")
        else:
            sim.set_config(
                assignment_interval_ms=rng.choice((0, 1_000, 3_000)), assignor_offload_enable=rng.random() < 0.5
            )

    for _ in range(rng.randint(1, 4)):
        join()
    sim.sched.at(500, act)
    end = sim.sched.now + FAULTS_MS
    while sim.sched.now < end:
        sim.sched.step()
    sim.faults.on = False
    for node in sim.nodes:
        node.alive, node.cut_off, node.paused_until = True, False, 0
    tell("faults end")
    bound = sim.sched.now + BOUND_MS
    while not settled(sim):
        if sim.sched.now > bound:
            raise Violation(f"not settled {BOUND_MS} ms after the faults: {describe(sim)}")
        next_look = sim.sched.now + 1_000
        while sim.sched.now < next_look:
            sim.sched.step()
    return sim.sched.count


def settled(sim: Cluster) -> bool:
    """Stable, everybody has what the target says, nothing is left over, the dead are gone."""
    present = {c.member_id: c for c in sim.clients if not c.gone and not c.leaving}
    group = sim.committed.groups.get(GROUP)
    if group is None:
        return not present
    if set(group.members) != set(present):
        return False
    if not present:
        return True
    if group.state() is not GroupState.STABLE:
        return False
    owned: set[tuple[bytes, int]] = set()
    for c in present.values():
        if c.epoch != group.members[c.member_id].member_epoch:
            return False
        owned |= c.partitions()
    wanted: set[tuple[bytes, int]] = set()
    for m in group.members.values():
        for name in group.topics_of(m):
            t = sim.topics.get(name)
            if t is not None:
                wanted |= {(t.id, p) for p in range(t.partitions)}
    return owned == wanted


def describe(sim: Cluster) -> str:
    group = sim.committed.groups.get(GROUP)
    clients = [(c.member_id, c.epoch, sorted(c.partitions()), c.leaving) for c in sim.clients if not c.gone]
    if group is None:
        return f"no group; {clients}"
    members = [(m.member_id, m.member_epoch, str(m.state)) for m in group.members.values()]
    return f"{group.state()} epoch {group.epoch} target {group.assignment_epoch} members {members} clients {clients}"


def attempt(seed: int) -> tuple[int, int, str]:
    try:
        return seed, play(seed), ""
    except Exception as exc:  # noqa: BLE001 - told with its seed
        return seed, 0, f"{type(exc).__name__}: {exc}"


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=1_000)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    a = ap.parse_args()
    if a.seed is not None:
        print(play(a.seed, tell=print), "events: everything held")
        return 0
    start, events, bad = time.monotonic(), 0, 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, count, problem in pool.map(attempt, range(a.first, a.first + a.seeds), chunksize=20):
            events += count
            if problem:
                bad += 1
                print(f"seed {seed}: {problem}", flush=True)
    took = time.monotonic() - start
    print(f"{a.seeds} seeds, {events:,} events, {took:.0f} s: {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
