"""Sidecars die, brokers die or are silent."""

from __future__ import annotations

import asyncio

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER, BrokerConnection, ConnectionLost
from sidecar.process.coordination import Coordination
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import offset_fetch as of
from tests.whole.client import Habits
from tests.whole.faults import GROUPS
from tests.whole.judge import STATE_TOPIC
from tests.whole.kafka import SIDECAR_PORT, host_of
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import (
    GOES_ON_MS,
    GONE_MS,
    SILENT_MS,
    TAKEN_MS,
    an_owner,
    come,
    cut_off,
    goes_on,
    owned_by,
    owners_coordinator,
    run_ms,
    start,
    wait,
    watch,
)
from tests.whole.timeline import FAULT
from tests.whole.universe import Life
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World

GROUP = 32
"""The resource type."""
ASKED_MS = 10_000
REMOVED_MS = 12_000
"""From the death of a member, whose session is 6 s, until the others have its partitions and have been answered twice.
The longest lease is 15 s."""


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


def member_dies_while_its_owner_ends(world: World) -> None:
    """The member is removed after its session, as if its coordinator had stayed: a sidecar that ends in order has no
    lease."""
    start(world)
    come(world, 2)
    n = an_owner(world)
    dies = world.rng.choice(owned_by(world, n))
    world.say(FAULT, f"{dies.name} dies, and sidecar {n} ends in order")
    dies.proc.crash()
    world.sidecars[n].terminate()
    wait(world, REMOVED_MS, lambda: world.unsettled(dies.habits.group_id))


def member_dies_while_its_owner_is_given_its_partitions_back(world: World) -> None:
    """The same with an owner that goes on, and with the one before, which stood still and came back. That one has its
    partitions only when it has been there for a while."""
    start(world)
    come(world, 2)
    n = an_owner(world)
    mine = owned_by(world, n)
    partitions = {world.judge.fold.partition_of(c.habits.group_id) for c in mine}
    proc, parts = world.sidecars[n].proc, world.judge.fold.parts
    world.say(FAULT, f"sidecar {n} stands still")
    proc.stand_still()
    run_ms(world, 8_000)
    world.say(FAULT, f"... sidecar {n} goes on")
    proc.go_on()
    back_ms = world.universe.now_ms
    if not watch(world, BOUND_MS, lambda: any(parts[p].owner == n for p in partitions)):
        raise Violation(f"sidecar {n} has not been given its partitions back")
    follow_ms = world.settings(n).ownership.follow_leader_ms
    if world.universe.now_ms - back_ms < follow_ms:
        raise Violation(f"sidecar {n} has its partitions back after {world.universe.now_ms - back_ms:,.0f} ms")
    dies = world.rng.choice(mine)
    world.say(FAULT, f"{dies.name} dies")
    dies.proc.crash()
    wait(world, REMOVED_MS, lambda: world.unsettled(dies.habits.group_id))


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
    # It would get its partitions back meanwhile.
    reads_ms = world.settings(n).ownership.follow_leader_ms + 8_000.0
    world.say(FAULT, f"sidecar {n} is started, and takes {reads_ms / 1000:.0f} s to read the state topic")
    world.start_sidecar(n)
    world.sidecars[n].reads_after_ms = reads_ms
    goes_on(world, world.clients, round(reads_ms) + 12_000, GONE_MS)


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


def coordinator_falls_silent_in_a_join(world: World) -> None:
    """A sidecar dies, and while the others join anew, the broker that coordinates their group stands still: another one
    coordinates it soon, and they join there."""
    start(world)
    come(world, 2)
    n = owners_coordinator(world)
    dies = world.rng.choice([m for m in NODES if m != n])
    world.say(FAULT, f"sidecar {dies} is killed")
    world.sidecars[dies].proc.crash()

    def joining() -> bool:
        halves = [s.app.half for s in world.sidecars.values() if s.app is not None]
        lanes = [h.cluster._nodes.get((n, Lane.OWNERS, 0)) for h in halves if isinstance(h, Coordination)]
        return any(c is not None and c._waiting for c in lanes)

    if not watch(world, TAKEN_MS, joining):
        raise Violation(f"nobody joins the owners anew within {TAKEN_MS} ms")
    world.say(FAULT, f"broker {n}, which coordinates the owners' group, stands still")
    world.kafka.procs[n].stand_still()
    # Clients look for their coordinator at random, and two hosts of three give no answer.
    goes_on(world, world.clients, 40_000, SILENT_MS + 6_000)


def owners_coordinator_dies(world: World) -> None:
    """Finding L5: for 9 s nobody coordinates the owners' group, and a lease lasts 4 s here. Groups whose partitions can
    be written go on: those of which the broker that dies keeps no replica. Their members commit nothing, because no
    offset can be committed meanwhile, and an answer waits for the one before it."""
    world.prepare_state_topic(replicas=2)
    start(world)
    for group_id, kind in GROUPS.items():
        for _ in range(2):
            world.add_client(kind, Habits(group_id, ("t1", "t2"), commit_ms=1e9))
    until(world, BOUND_MS, world.settled)
    n, fold = owners_coordinator(world), world.judge.fold
    kept = world.kafka.cluster.controller.image.topics[STATE_TOPIC].partitions
    living = [p for p, part in enumerate(fold.parts) if n != part.owner and n not in kept[p].replicas]
    clients = [c for c in world.clients if fold.partition_of(c.habits.group_id) in living]
    world.judge.figures["groups that go on"] += len({c.habits.group_id for c in clients})
    world.say(FAULT, f"broker {n}, which coordinates the owners' group, is killed; {living} can be written")
    world.kafka.crash(n)
    goes_on(world, clients, 20_000, GOES_ON_MS)


def leader_of_the_state_dies(world: World) -> None:
    """The broker that leads a partition of the state topic dies and comes back, and another one leads it then. Its
    owner, whose own broker lives, writes to that one."""
    start(world)
    come(world)
    p = world.rng.randrange(PARTITIONS)
    n = world.kafka.leader(STATE_TOPIC, p)
    assert n is not None
    world.say(FAULT, f"sidecar {n} is killed")
    world.sidecars[n].proc.crash()
    until(world, BOUND_MS, world.settled)
    world.say(FAULT, f"broker {n}, which leads {p} of the state topic, is killed")
    world.kafka.crash(n)
    run_ms(world, 12_000)
    world.say(FAULT, f"... broker {n} is started")
    world.kafka.start(n)
    come(world)
    run_ms(world, 10_000)
    until(world, BOUND_MS, world.settled)


def owner_is_alone_with_its_members(world: World) -> None:
    """The owner is cut off from the other hosts, and members that commit nothing hear from it that all is well, as long
    as it has its lease. Their sessions are shorter. The next owner, which they do not know, removes none of them
    before."""
    start(world)
    for group_id, kind in GROUPS.items():
        for _ in range(2):
            world.add_client(kind, Habits(group_id, ("t1", "t2"), commit_ms=1e9))
    until(world, BOUND_MS, world.settled)
    n = an_owner(world)
    world.say(FAULT, f"host {n}, which owns partitions, is cut off")
    cut_off(world, n)
    run_ms(world, 25_000)
    world.say(FAULT, f"... host {n} is reached again")
    world.net.heal()
    until(world, BOUND_MS, world.settled)


def last_sidecar_is_cut_off(world: World) -> None:
    """The owners' group is coordinated by the broker beside it, which answers heartbeats without asking anybody. So
    nobody contradicts, and yet another broker coordinates the group by then. Members commit nothing: a broker that has
    something to commit and cannot answers no heartbeat."""
    start(world)
    for group_id, kind in GROUPS.items():
        world.add_client(kind, Habits(group_id, ("t1", "t2"), commit_ms=1e9))
    until(world, BOUND_MS, world.settled)
    n = owners_coordinator(world)
    for m in NODES:
        if m != n:
            world.say(FAULT, f"sidecar {m} is told to stop")
            world.sidecars[m].terminate()
    run_ms(world, 5_000)
    world.say(FAULT, f"host {n} is cut off")
    cut_off(world, n)
    run_ms(world, 40_000)
    world.say(FAULT, f"... host {n} is reached again")
    world.net.heal()
    start(world)
    until(world, BOUND_MS, world.settled)


def paused_with_its_members(world: World) -> None:
    """Finding S7: a host with a sidecar and members of its groups is suspended for longer than all sessions. All its
    clocks but the wall's stand still; or its monotonic clock does, and the wall's is wrong when it wakes. Then its
    members ask before the sidecar has heard from anybody else."""
    start(world)
    come(world, 2)
    n = an_owner(world)
    members = [c for c in owned_by(world, n) if c.proc.life is Life.RUNS]
    kept = [c for c in members if world.rng.random() < 0.5][: len(members) - 1]
    asleep = [c for c in members if c not in kept]
    paused = world.rng.random() < 0.5
    world.say(
        FAULT, f"host {n} and {[c.name for c in asleep]} are suspended{' with all clocks but one' if paused else ''}"
    )
    procs = [world.sidecars[n].proc, world.kafka.procs[n]]
    for proc in (*procs, *(c.proc for c in asleep)):
        proc.stand_still()
    run_ms(world, 40_000)
    world.say(FAULT, f"... they wake{'' if paused else ', and the wall clock is a minute behind'}")
    for proc in procs:
        proc.wall_offset_ms -= 0.0 if paused else 60_000.0
    for c in asleep:
        c.proc.go_on()
    for proc in procs:
        proc.go_on(slept=True, paused=paused)
    run_ms(world, 10_000)
    until(world, BOUND_MS, world.settled)


def asked_while_it_starts(world: World) -> None:
    """Finding L10: clients come to a sidecar that has just been started and does not know who leads or owns what."""
    start(world)
    come(world)
    n = world.rng.choice(NODES)
    world.sidecars[n].proc.crash()
    run_ms(world, 3_000)
    world.start_sidecar(n)
    world.at_a_desk(lambda: _asks(world, n))
    goes_on(world, world.clients, 15_000, GONE_MS)


async def _asks(world: World, n: int) -> None:
    """From the first moment on, again and again."""
    end_ms, answers = world.universe.now_ms + ASKED_MS, 0
    asked = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(GROUP, group_id, None) for group_id in GROUPS])
    wanted = [of.OffsetFetchRequestGroup(group_id, None, -1, None) for group_id in GROUPS]
    while world.universe.now_ms < end_ms:
        try:
            conn = await BrokerConnection.open(host_of(n), SIDECAR_PORT, "desk", 2.0)
        except ConnectionLost:
            await asyncio.sleep(0.01)  # it does not listen yet
            continue
        try:
            where = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=[*GROUPS])
            led = await conn.request(fc, "FindCoordinator", where, high=4, timeout_s=9.0)
            told = await conn.request(dc, "DescribeConfigs", asked, timeout_s=9.0)
            codes = [c.error_code for c in led.coordinators] + [r.error_code for r in told.results]
            found = await conn.request(of, "OffsetFetch", of.OffsetFetchRequest(groups=wanted), high=9, timeout_s=9.0)
            codes += [g.error_code for g in found.groups]
            answers += 1
        except NO_ANSWER as exc:
            raise Violation(f"sidecar {n} is asked for {[*GROUPS]} and gives no answer: {exc!r}") from exc
        finally:
            conn.close()
        if Code.UNKNOWN_SERVER_ERROR in codes:
            raise Violation(f"sidecar {n} is asked for {[*GROUPS]} and answers with an unknown server error")
        await asyncio.sleep(0.05)
    world.judge.figures["early answers"] += answers
