"""A group of the brokers is taken in and given back while its members live, and its owner dies meanwhile."""

from __future__ import annotations

from tests.whole.broker.groups import partition_for
from tests.whole.client import Habits
from tests.whole.faults import MOVES
from tests.whole.judge import STATE_TOPIC
from tests.whole.members import ClassicMember
from tests.whole.moving import BROKER
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import run_ms, start, wait, watch
from tests.whole.stored import OFFSETS
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import PARTITIONS, World

SESSION_MS = 20_000
"""Of members, so that a group does not only come to an end because sessions do."""
MOVED_MS = 10_000
"""From an order until the group is stable where it should be, with two takeovers in between."""
SOON_MS = 800.0
DEAF_MS = 30_000
NATIVE = "n1"
"""A group of the brokers in partition 1, as g2."""
JOINS_MS = 4_000
"""A member that comes, with what it takes a client to try the next broker."""


def _come(world: World) -> None:
    """Two members, and the group is stable at the broker."""
    start(world)
    world.judge.moving.homes[MOVES] = BROKER
    for _ in range(2):
        world.add_client(ClassicMember, Habits(MOVES, ("t1", "t2"), session_ms=SESSION_MS, commit_ms=200.0))
    until(world, BOUND_MS, world.settled)


def _order(world: World, managed: bool) -> None:
    world.say(FAULT, f"{MOVES} is to be {'taken in' if managed else 'given back'}")
    world.order(MOVES, managed)


def _owner_dies(world: World) -> None:
    """At some moment of a move. It is started again at the end."""
    n = world.judge.owner_of(MOVES)
    world.say(FAULT, f"sidecar {n}, which owns {MOVES}, is killed")
    world.sidecars[n].proc.crash()


def _ends(world: World) -> None:
    until(world, MOVED_MS, world.settled)
    run_ms(world, 3_000)
    until(world, MOVED_MS, world.settled)
    world.judge.at_the_end()


def owner_dies_while_it_takes_in(world: World) -> None:
    """The group is written down, and its members may still be members at the broker: the next owner goes on."""
    _come(world)
    _order(world, True)
    if not watch(world, MOVED_MS, lambda: world.judge.fold.has_records(MOVES)):
        raise Violation(f"{MOVES} is not written down within {MOVED_MS:,} ms")
    if world.rng.random() < 0.5:
        run_ms(world, world.rng.uniform(0, SOON_MS))
    _owner_dies(world)
    _ends(world)


def one_hears_nothing_of_it(world: World) -> None:
    """A sidecar's copy of the state topic lags while the group is taken in, and the owner's broker stands still before
    the group has its placeholder there. The broker beside the deaf one may coordinate the group next: whoever joins
    there must not begin it anew. (Simulation, seed 12903.)"""
    _come(world)
    n = world.judge.owner_of(MOVES)
    deaf = world.rng.choice([s for m, s in world.sidecars.items() if m != n])
    tail = deaf.tail
    assert tail is not None
    world.say(FAULT, f"the tail of sidecar {deaf.node_id} lags")
    tail.lag_ms = DEAF_MS
    run_ms(world, SOON_MS)
    _order(world, True)
    if not watch(world, MOVED_MS, lambda: world.judge.fold.has_records(MOVES)):
        raise Violation(f"{MOVES} is not written down within {MOVED_MS:,} ms")
    run_ms(world, world.rng.uniform(0, 100))
    world.say(FAULT, f"broker {n} stands still")
    world.kafka.procs[n].stand_still()
    run_ms(world, DEAF_MS)
    tail.lag_ms = 0.0
    world.kafka.procs[n].go_on()
    until(world, DEAF_MS, world.settled)  # who was told that it is no member comes anew, and is waited for until then
    _ends(world)


def owner_dies_while_it_gives_back(world: World) -> None:
    """Members have been told to join anew, or have left, and the placeholder is given up or not: the next owner goes
    on."""
    _come(world)
    _order(world, True)
    until(world, MOVED_MS, world.settled)
    _order(world, False)
    watch(world, MOVED_MS, lambda: world.judge.moving.homes[MOVES] == BROKER)
    run_ms(world, world.rng.uniform(0, SOON_MS))
    _owner_dies(world)
    _ends(world)


def leader_of_the_patterns_dies(world: World) -> None:
    """Partition 0 of the state topic, which has the patterns of all brokers, has no leader for the 9 s that the
    controller takes to see it. Groups of the brokers that live take in members meanwhile: the other replicas know as
    well that nothing has changed."""
    start(world)
    world.judge.moving.homes[NATIVE] = BROKER
    n, keeper = (
        world.kafka.leader(topic, p) for topic, p in ((STATE_TOPIC, 0), (OFFSETS, partition_for(NATIVE, PARTITIONS)))
    )
    if n is None or n == keeper:
        raise Violation(f"{NATIVE} is where the patterns are, and the scene shows nothing")
    world.say(FAULT, f"broker {n}, which leads partition 0 of the state topic, dies; broker {keeper} leads {NATIVE}")
    world.kafka.crash(n)
    run_ms(world, world.rng.uniform(0, 3_000))
    comer = world.add_client(ClassicMember, Habits(NATIVE, ("t1", "t2"), session_ms=SESSION_MS, commit_ms=200.0))
    wait(world, JOINS_MS, lambda: "" if comer.well_ms else f"a member of {NATIVE}, whose broker lives")
    if world.kafka.leader(STATE_TOPIC, 0) not in (None, n):
        raise Violation("the controller has seen it already, and the scene shows nothing")
    run_ms(world, DEAF_MS)
    world.kafka.start(n)
    _ends(world)
