"""Runs in which one thing goes wrong, at a chosen moment, and the time counts: what chance brings about too seldom, or
what is only seen with a watch in the hand. Each raises Violation.

They are part of `make test` (test_scenes.py), and some planted bugs show in them (planted.py). One with its timeline:

python -m tests.whole.scenes owner_dies [--seed 3]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from sidecar.state.keys import encode_key
from tests.whole.broker.batches import of_records
from tests.whole.broker.groups import partition_for
from tests.whole.client import Client, Habits
from tests.whole.faults import GROUPS, TRANSACTIONS
from tests.whole.judge import STATE_TOPIC
from tests.whole.many import quiet
from tests.whole.members import ClassicMember, ConsumerMember
from tests.whole.run import BOUND_MS, START_MS, Plant, on_stage, until
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World

Scene = Callable[[World], None]
STEP_MS = 100
TAKEN_MS = 2_500
"""From the moment in which an owner falls silent until its partitions are somebody else's."""
GONE_MS = 4_000
"""A sidecar that dies: so long until each of its members is told again that all is well (they ask once a second)."""
SILENT_MS = 20_000
"""A broker stands still and a sidecar dies: nothing can be committed until the controller has noticed (9 s), and the
owners' group has a new coordinator that begins all sessions anew (6 s)."""


def act(scene: Scene, seed: int, plant: Plant | None = None, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """What has happened how often. Raises Violation."""
    world = World(seed, tell, BROKERS.get(scene))
    if plant is not None:
        plant(world)
    on_stage(world, scene)
    return world.judge.figures


# ---- what they are made of ------------------------------------------------------------------------------------
def run_ms(world: World, ms: float) -> None:
    world.universe.run_until(world.universe.now_ms + ms)


def start(world: World) -> None:
    for n in NODES:
        if n not in world.sidecars or not world.sidecars[n].proc.alive:
            world.start_sidecar(n)
    until(world, START_MS, lambda: "" if world.ready() else str({n: s.problems for n, s in world.sidecars.items()}))


def come(world: World, each: int = 1) -> None:
    for group_id, kind in GROUPS.items():
        for _ in range(each):
            world.add_client(kind, Habits(group_id, ("t1", "t2")))
    until(world, BOUND_MS, world.settled)


def goes_on(world: World, clients: Iterable[Client], for_ms: float, bound_ms: float) -> None:
    """None of them is without a good answer for longer than the bound."""
    universe, watched = world.universe, list(clients)
    end_ms = universe.now_ms + for_ms
    while universe.now_ms < end_ms:
        run_ms(world, STEP_MS)
        for c in watched:
            if universe.now_ms - c.well_ms > bound_ms:
                world.say(c.name, "has not been answered well for too long")
                raise Violation(f"{c.name} of {c.habits.group_id} has not been answered well for {bound_ms:,.0f} ms")


def owned_by(world: World, *nodes: int) -> list[Client]:
    parts = world.judge.fold.parts
    return [c for c in world.clients if parts[world.judge.fold.partition_of(c.habits.group_id)].owner in nodes]


def an_owner(world: World) -> int:
    return world.rng.choice(sorted({part.owner for part in world.judge.fold.parts if part.owner in NODES}))


# ---- sidecars die ---------------------------------------------------------------------------------------------
def owner_dies(world: World) -> None:
    start(world)
    come(world, 2)
    n = an_owner(world)
    world.say(FAULT, f"sidecar {n} is killed")
    world.sidecars[n].proc.crash()
    goes_on(world, world.clients, 10_000, GONE_MS)


def owner_dies_that_had_lost_its_session(world: World) -> None:
    """Finding L3: it is a member of the owners' group under another id than on its first day."""
    start(world)
    come(world, 2)
    for n in NODES:
        world.say(FAULT, f"sidecar {n} stands still")
        proc = world.sidecars[n].proc
        proc.stand_still()
        run_ms(world, 8_000)
        proc.go_on()
        until(world, BOUND_MS, world.settled)
        run_ms(world, 3_000)
    owner_dies(world)


def owner_stands_still(world: World) -> None:
    """Finding L6: its connections stay open, and nobody answers on them. The members have given up by themselves, as
    clients do after their own time."""
    start(world)
    come(world, 2)
    n = an_owner(world)
    away = [c for c in world.clients if c not in owned_by(world, n)]
    world.say(FAULT, f"sidecar {n} stands still")
    proc = world.sidecars[n].proc
    proc.stand_still()
    goes_on(world, away, TAKEN_MS, GONE_MS)
    left = [p for p, part in enumerate(world.judge.fold.parts) if part.owner == n]
    if left:
        raise Violation(f"partitions {left} have not been taken from sidecar {n} in {TAKEN_MS:,} ms")
    world.say(FAULT, f"... sidecar {n} goes on")
    proc.go_on()
    until(world, BOUND_MS, world.settled)


def all_are_killed(world: World) -> None:
    """The brokers keep the members of the killed sidecars in the owners' group; nobody waits for them."""
    start(world)
    come(world, 1)
    for n in NODES:
        world.say(FAULT, f"sidecar {n} is killed")
        world.sidecars[n].proc.crash()
    run_ms(world, 500)
    for n in NODES:
        world.start_sidecar(n)
    run_ms(world, TAKEN_MS)
    if not world.ready():
        raise Violation(f"the sidecars are not ready {TAKEN_MS:,} ms after they were started again")
    until(world, BOUND_MS, world.settled)


def two_die_at_once(world: World) -> None:
    """Finding L4: while the one that is left waits with its JoinGroup for a peer that is dead, too."""
    start(world)
    come(world, 2)
    left = an_owner(world)
    first, second = [n for n in NODES if n != left]
    world.say(FAULT, f"sidecar {first} is killed")
    world.sidecars[first].proc.crash()
    run_ms(world, world.rng.uniform(0.2, 4.0))
    world.say(FAULT, f"sidecar {second} is killed")
    world.sidecars[second].proc.crash()
    goes_on(world, world.clients, 10_000, GONE_MS + 500)


def cold_start(world: World) -> None:
    """Finding L2: a sidecar that has not read the state topic yet takes nothing from who knows it."""
    start(world)
    come(world, 2)
    n = an_owner(world)
    world.sidecars[n].proc.crash()
    run_ms(world, 4_000)
    world.say(FAULT, f"sidecar {n} is started, and takes 8 s to read the state topic")
    world.start_sidecar(n)
    made = world.sidecars[n]
    made.reads_after_ms = 8_000.0
    goes_on(world, world.clients, 20_000, GONE_MS)


# ---- brokers die, or are silent -------------------------------------------------------------------------------
def first_bootstrap_is_silent(world: World) -> None:
    """Finding L1: the first broker of everybody's list stands still. Nobody waits for it again and again."""
    start(world)
    come(world, 2)
    n = NODES[0]
    clients = owned_by(world, *NODES[1:])
    world.say(FAULT, f"broker {n} stands still")
    world.kafka.procs[n].stand_still()
    run_ms(world, 2_000)
    owner = next(m for m in NODES[1:] if m in {p.owner for p in world.judge.fold.parts})
    world.say(FAULT, f"sidecar {owner} is killed")
    world.sidecars[owner].proc.crash()
    goes_on(world, clients, 38_000, SILENT_MS)


# ---- offsets and settings -------------------------------------------------------------------------------------
def offsets_get_old(world: World) -> None:
    """Finding S1: played with a retention of one minute. A group that lives does not lose the offsets of partitions
    that nothing comes into."""
    start(world)
    for group_id, kind in GROUPS.items():
        world.add_client(kind, Habits(group_id, ("t1", "t2"), idle=frozenset({("t2", 0), ("t1", 1)})))
    until(world, BOUND_MS, world.settled)
    run_ms(world, 180_000)
    world.judge.at_the_end()
    until(world, BOUND_MS, world.settled)


def patterns_differ(world: World) -> None:
    """Finding S4: while settings are rolled out each sidecar names other groups; what is stored counts."""
    start(world)
    come(world)
    world.store_patterns("g.*")
    run_ms(world, 2_000)
    world.include = {1: ("other",), 2: ("g1",), 3: ("g2", "x.*")}
    for n in NODES:
        world.say(FAULT, f"sidecar {n} is restarted with the patterns {world.include[n]}")
        world.sidecars[n].terminate()
        run_ms(world, 1_500)
        world.start_sidecar(n)
        run_ms(world, 4_000)
    come(world)
    until(world, BOUND_MS, world.settled)
    world.judge.at_the_end()


UNREADABLE = "g9"


def unreadable_group(world: World) -> None:
    """Finding S5: one record is damaged, one is of a kind and a schema that nobody here knows. That group is served by
    nobody, its records stay; the other groups go on."""
    world.prepare_state_topic()
    p = partition_for(UNREADABLE, PARTITIONS)
    damaged = (encode_key("member", UNREADABLE, "m1"), b"\xc3\x01 damaged")
    newer = (encode_key("constellation", UNREADABLE, "m1"), b"\xc3\x01" + b"newer!!!" + b"\x02" * 20)
    world.judge.fold.foreign.add(UNREADABLE)
    world.kafka.inject(STATE_TOPIC, p, of_records((damaged, newer), world.kafka.procs[1].wall_ms()))
    start(world)
    hopeless = [world.add_client(kind, Habits(UNREADABLE, ("t1",))) for kind in (ConsumerMember, ClassicMember)]
    others = [world.add_client(kind, Habits(g, ("t1", "t2"))) for g, kind in GROUPS.items()]
    run_ms(world, 3_000)
    goes_on(world, others, 3_000, GONE_MS)
    for _ in range(2):
        owner = world.judge.fold.parts[p].owner
        world.say(FAULT, f"sidecar {owner} is killed")
        world.sidecars[owner].proc.crash()
        goes_on(world, others, 6_000, GONE_MS)
        world.start_sidecar(owner)
        for q in range(PARTITIONS):
            world.kafka.cluster.compact(STATE_TOPIC, q)
        goes_on(world, others, 6_000, GONE_MS)
    if served := [c.name for c in hopeless if c.steady or c.well_ms]:
        raise Violation(f"{served} are served, though nobody can read what their group was")
    kept = [key for key in world.judge.fold.parts[p].values if key.group_id == UNREADABLE]
    if len(kept) != 2 or any(s.ended for s in world.lives):
        raise Violation(f"of the group that cannot be read {kept} are left")


# ---- two with one node id, and ids that go down ---------------------------------------------------------------
def twins(world: World) -> None:
    """Finding S8: two sidecars with one node id. One of them serves, the other one says why it does not."""
    start(world)
    come(world)
    n = an_owner(world)
    world.say(FAULT, f"a second sidecar with node id {n} is started on another host")
    world.judge.unheard.add(n)
    twin = world.start_twin(n)
    goes_on(world, owned_by(world, *(m for m in NODES if m != n)), 25_000, GONE_MS)
    claims = sum(part.claims for part in world.judge.fold.parts)
    run_ms(world, 20_000)
    again = sum(part.claims for part in world.judge.fold.parts) - claims
    if again > 4:
        raise Violation(f"two sidecars with one node id have taken partitions from each other {again} times in 20 s")
    twin.proc.crash()


def fences_go_down(world: World) -> None:
    """Finding S3, played with ids that the brokers forget soon. All sidecars are stopped until the brokers have
    forgotten their transactional ids, and then other brokers give them producer ids. If one of these is lower than the
    one before, as it is where that broker had its block of ids first (one seed in five), that partition is taken over
    once more, in a state that has changed meanwhile."""
    start(world)
    come(world)
    parts = world.judge.fold.parts
    p = max(range(PARTITIONS), key=lambda p: parts[p].claimed)
    high, gave = parts[p].claimed, giver(world, p)
    for s in world.sidecars.values():
        s.terminate()
    run_ms(world, 60_000)
    if gave is None:
        return
    world.kafka.crash(gave)
    run_ms(world, 20_000)
    first = giver(world, p)
    world.kafka.start(gave)
    run_ms(world, 10_000)
    start(world)
    if first is None or parts[p].claimed >= high:
        return
    world.judge.figures["fences went down"] += 1
    come(world)
    world.sidecars[parts[p].owner].proc.crash()
    until(world, BOUND_MS, world.settled)
    come(world)
    world.judge.at_the_end()


def giver(world: World, p: int) -> int | None:
    """The broker that gives fences for this partition."""
    return world.kafka.leader(TRANSACTIONS, partition_for(f"{STATE_TOPIC}-{p}", PARTITIONS))


SCENES: Mapping[str, Scene] = {
    scene.__name__: scene
    for scene in (
        owner_dies,
        owner_dies_that_had_lost_its_session,
        owner_stands_still,
        all_are_killed,
        two_die_at_once,
        cold_start,
        first_bootstrap_is_silent,
        offsets_get_old,
        patterns_differ,
        unreadable_group,
        twins,
        fences_go_down,
    )
}
BROKERS: Mapping[Scene, Mapping[str, str]] = {
    offsets_get_old: {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"},
    fences_go_down: {"transactional.id.expiration.ms": "20000"},
}
"""Settings of the brokers in some scenes."""


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("scene", choices=SCENES)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    quiet()
    try:
        act(SCENES[a.scene], a.seed, tell=print)
    except Violation as exc:
        print(f"{a.scene}, seed {a.seed}: {exc}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
