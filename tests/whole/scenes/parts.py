"""The parts that scenes are made of: see __init__.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sidecar.kafka.net import BrokerConnection
from tests.whole.broker.groups import partition_for
from tests.whole.client import Client, Habits
from tests.whole.faults import GROUPS, TRANSACTIONS
from tests.whole.judge import STATE_TOPIC
from tests.whole.kafka import host_of
from tests.whole.net import End, SimTransport
from tests.whole.run import BOUND_MS, START_MS, until
from tests.whole.stored import OFFSETS
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, TXN_PARTITIONS, World

Scene = Callable[[World], None]
STEP_MS = 100
TAKEN_MS = 2_500
"""From the moment in which an owner falls silent until its partitions are somebody else's."""
GONE_MS = 4_000
"""A sidecar that dies: so long until each of its members is told again that all is well (they ask once a second)."""
GOES_ON_MS = 2_500
"""The time after which a client is told again that all is well that need not wait for a broker that has died."""
SILENT_MS = 20_000
"""A broker stands still and a sidecar dies: nothing can be committed until the controller has noticed (9 s), and the
owners' group has a new coordinator that begins all sessions anew (6 s)."""


def run_ms(world: World, ms: float) -> None:
    world.universe.run_until(world.universe.now_ms + ms)


def start(world: World) -> None:
    for n in NODES:
        if n not in world.sidecars or not world.sidecars[n].proc.alive:
            world.start_sidecar(n)
    until(world, START_MS, lambda: "" if world.ready() else str({n: s.problems for n, s in world.sidecars.items()}))


def wait(world: World, bound_ms: float, missing: Callable[[], str]) -> None:
    """Until nothing is missing any more. Who is down stays down, other than in `until`."""
    end_ms = world.universe.now_ms + bound_ms
    while problem := missing():
        if world.universe.now_ms >= end_ms:
            raise Violation(f"not within {bound_ms / 1000:g} s: {problem}")
        run_ms(world, STEP_MS)


def come(world: World, each: int = 1, session_ms: int = Habits.session_ms) -> None:
    for group_id, kind in GROUPS.items():
        for _ in range(each):
            world.add_client(kind, Habits(group_id, ("t1", "t2"), session_ms=session_ms))
    until(world, BOUND_MS, world.settled)


def goes_on(world: World, clients: Iterable[Client], for_ms: float, bound_ms: float) -> None:
    """From now on none of them is without a good answer for longer than the bound."""
    universe, watched = world.universe, list(clients)
    began_ms = universe.now_ms
    end_ms = began_ms + for_ms
    while universe.now_ms < end_ms:
        run_ms(world, STEP_MS)
        for c in watched:
            if universe.now_ms - max(c.well_ms, began_ms) > bound_ms:
                world.say(c.name, "has not been answered well for too long")
                raise Violation(f"{c.name} of {c.habits.group_id} has not been answered well for {bound_ms:,.0f} ms")


def owned_by(world: World, *nodes: int) -> list[Client]:
    parts = world.judge.fold.parts
    return [c for c in world.clients if parts[world.judge.fold.partition_of(c.habits.group_id)].owner in nodes]


def an_owner(world: World) -> int:
    return world.rng.choice(sorted({part.owner for part in world.judge.fold.parts if part.owner in NODES}))


def giver(world: World, p: int) -> int | None:
    """The broker that gives fences for this partition."""
    return world.kafka.leader(TRANSACTIONS, partition_for(f"{STATE_TOPIC}-{p}", TXN_PARTITIONS))


def owners_coordinator(world: World) -> int:
    """The broker that coordinates the sidecars' own group."""
    group_id = world.settings(NODES[0]).ownership.group
    found = world.kafka.leader(OFFSETS, partition_for(group_id, PARTITIONS))
    assert found is not None
    return found


def end_of(conn: BrokerConnection) -> End:
    assert isinstance(conn._transport, SimTransport)
    return conn._transport._end


def cut_off(world: World, n: int) -> None:
    """From the other hosts of brokers; clients reach it all the same."""
    net = world.net
    net.cut |= {way for m in NODES if m != n for way in ((host_of(n), host_of(m)), (host_of(m), host_of(n)))}


def watch(world: World, bound_ms: float, sees: Callable[[], bool]) -> bool:
    """Go on until just behind the event after which this is so. False: it was not, in all that time."""
    universe, end_ms = world.universe, world.universe.now_ms + bound_ms

    def look() -> bool:
        universe.halts = sees()
        return universe.halts

    universe.watched.append(look)
    universe.run_until(end_ms)
    if look not in universe.watched:
        return True
    universe.watched.remove(look)
    return False
