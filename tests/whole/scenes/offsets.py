"""Offsets at the broker: they get old, and commits arrive late.

A commit goes from an owner to the broker that keeps the offsets over one connection of several. Here that connection
loses what is sent for a while, and the others do not: then the member is removed, and another one takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import BrokerConnection
from sidecar.process.coordination import Coordination
from tests.whole.client import Client, Habits, Place
from tests.whole.faults import GROUPS
from tests.whole.net import End
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import come, end_of, run_ms, start, wait, watch
from tests.whole.stored import OFFSETS
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

REMOVED_MS = 9_000
"""A member falls silent: so long until another one has its partitions, and has committed. A request to a broker is
given up after 10 s."""
SLOW_MS = 700.0
DOUBT_MS = 16_000
"""Longer than a commit is waited for."""


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


@dataclass(frozen=True)
class Lost:
    """A commit that is on its way and does not arrive. `conn`: from the owner to the keeper of the offsets."""

    keeper: int
    owner: int
    client: Client
    places: frozenset[Place]
    conn: BrokerConnection


def _lost_commit(world: World) -> Lost:
    """The sidecar beside the keeper of the offsets is down, so commits go from host to host."""
    start(world)
    come(world, 2)
    group_id = world.rng.choice(sorted(GROUPS))
    p = world.judge.fold.partition_of(group_id)
    keeper = world.kafka.leader(OFFSETS, p)
    assert keeper is not None
    world.say(FAULT, f"sidecar {keeper}, beside the keeper of {p}, is killed")
    world.sidecars[keeper].proc.crash()
    part = world.judge.fold.parts[p]
    wait(world, BOUND_MS, lambda: "nobody else has claimed it" if part.owner == keeper else world.unsettled(group_id))
    found: list[Lost] = []

    def sees() -> bool:
        committing = [c for c in world.clients if c.committing]
        app = world.sidecars[part.owner].app
        assert app is not None
        lanes = [c for (n, lane, _), c in app.cluster._nodes.items() if (n, lane) == (keeper, Lane.COMMITS)]
        busy = [c for c in lanes if c._waiting]
        if len(committing) == len(busy) == 1 and committing[0].habits.group_id == group_id:
            c = committing[0]
            found.append(Lost(keeper, part.owner, c, frozenset(c.owned), busy[0]))
        return bool(found)

    if not watch(world, 30_000, sees):
        raise Violation(f"no commit of {group_id} went to broker {keeper} within 30 s")
    lost = found[0]
    world.say(FAULT, f"a commit of {lost.client.name} is on its way and does not arrive")
    way = end_of(lost.conn)
    world.net.loses = lambda end: end is way
    return lost


def _taken_on(world: World, lost: Lost) -> bool:
    """Others have come to where these partitions are, and have committed."""
    others = [c for c in world.clients if c.habits.group_id == lost.client.habits.group_id and c is not lost.client]
    return all(any(place in c.owned and place in c._said for c in others) for place in lost.places)


def _arrives(world: World, for_ms: float) -> None:
    world.say(FAULT, "... what was on its way arrives")
    world.net.loses = None
    world.net.mended()
    run_ms(world, for_ms)


def _ends(world: World, lost: Lost) -> None:
    world.start_sidecar(lost.keeper)
    until(world, BOUND_MS, world.settled)
    world.judge.at_the_end()


def commit_is_on_its_way(world: World) -> None:
    """Finding S2: its member stands still and is removed meanwhile. Whoever has its partitions then reads no offset of
    them, and commits none, before that commit has arrived."""
    lost = _lost_commit(world)
    lost.client.proc.stand_still()
    watch(world, REMOVED_MS, lambda: _taken_on(world, lost))
    _arrives(world, 3_000)
    lost.client.proc.crash()
    _ends(world, lost)


def commit_is_in_doubt(world: World) -> None:
    """Finding S2: its member is killed, and its owner gives it up, so that nobody can say what becomes of it. It is
    refused when it arrives, because the member in whose name it goes is another one by then."""
    lost = _lost_commit(world)
    lost.client.proc.crash()
    watch(world, DOUBT_MS, lambda: _taken_on(world, lost))
    _arrives(world, 3_000)
    _ends(world, lost)


def commit_of_the_former_owner_is_on_its_way(world: World) -> None:
    """Finding S2: its member and its owner are killed. The next owner lets nobody fetch offsets before the broker
    refuses what the former one has let pass; and that takes a while, because its own requests for that are lost, too.
    """
    lost = _lost_commit(world)
    lost.client.proc.crash()
    former = end_of(lost.conn)
    (heir,) = (n for n in NODES if n not in (lost.keeper, lost.owner))
    app = world.sidecars[heir].app
    assert app is not None

    def of_seats(end: End) -> bool:
        half = app.half
        assert isinstance(half, Coordination)
        lanes = [c for (n, lane, _), c in half.cluster._nodes.items() if (n, lane) == (lost.keeper, Lane.PLACEHOLDERS)]
        return any(end is end_of(c) for c in lanes if c._transport is not None)

    world.net.loses = lambda end: end is former or of_seats(end)
    world.say(FAULT, f"sidecar {lost.owner} is killed, and sidecar {heir} takes no placeholder at broker {lost.keeper}")
    world.sidecars[lost.owner].proc.crash()

    def taken() -> bool:
        others = [c for c in world.clients if c.habits.group_id == lost.client.habits.group_id and c.proc.alive]
        return all(any(place in c.owned for c in others) for place in lost.places)

    watch(world, 2 * DOUBT_MS, taken)
    world.net.loses = of_seats
    world.net.mended()
    run_ms(world, 500)
    _arrives(world, 5_000)
    world.start_sidecar(lost.owner)
    _ends(world, lost)


def leaves_right_behind_its_transaction(world: World) -> None:
    """A member commits in a transaction and leaves. It knows that all is committed before the offsets can be read:
    their broker is slow to write the marker. Who has its partitions next waits for that, and reads them."""
    start(world)
    for group_id, kind in GROUPS.items():
        for how in ("old", "new", "old"):
            world.add_client(kind, Habits(group_id, ("t1", "t2"), heartbeat_ms=300, exactly_once=how))
    until(world, BOUND_MS, world.settled)
    for node_id in {world.kafka.leader(OFFSETS, world.judge.fold.partition_of(g)) for g in GROUPS} - {None}:
        world.say(FAULT, f"the disk of broker {node_id} is slow")
        world.kafka.cluster.slow_disk_ms[node_id or 0] = SLOW_MS
    for group_id in GROUPS:
        leaves = next(c for c in world.clients if c.habits.group_id == group_id)
        world.say(FAULT, f"{leaves.name} leaves")
        leaves.leaving = True
    run_ms(world, 10_000)
    world.kafka.cluster.slow_disk_ms.clear()
    until(world, BOUND_MS, world.settled)
    world.judge.at_the_end()
