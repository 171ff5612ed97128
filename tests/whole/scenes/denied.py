"""The brokers refuse something to the sidecars, or a sidecar has a bug: finding 1 of the operators' review. No process
ends, so every port stays open."""

from __future__ import annotations

from sidecar.process.coordination import Coordination
from tests.whole.broker.rights import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from tests.whole.client import Habits
from tests.whole.faults import GROUPS
from tests.whole.judge import STATE_TOPIC
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import come, goes_on, run_ms, start
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

FLAP_MS, LONG_MS = 6_000, 40_000
BACK_MS = 4_000
"""A takeover is tried again after so long at the latest."""
SIDECARS = tuple(f"sidecar-{n}" for n in NODES)


def _deny(world: World, kind: int, name: str, *operations: int) -> None:
    world.say(FAULT, f"the sidecars lose {operations or 'all'} of {name}")
    for principal in SIDECARS:
        world.kafka.cluster.rights.deny(principal, kind, name, *operations)


def _allow(world: World, kind: int, name: str) -> None:
    world.say(FAULT, f"the sidecars may use {name} again")
    for principal in SIDECARS:
        world.kafka.cluster.rights.allow(principal, kind, name)


def rights_are_made_anew(world: World) -> None:
    """As tools do it that describe rights in files: those at the state topic are removed, and there again after 6 s. It
    costs clients that time and no partition its owner, and nobody takes the topic for deleted."""
    start(world)
    come(world, 2)
    before = [part.owner for part in world.judge.fold.parts]
    _deny(world, TOPIC, STATE_TOPIC)
    known = list(world.clients)
    for group_id, kind in GROUPS.items():  # somebody has something written meanwhile
        world.add_client(kind, Habits(group_id, ("t1", "t2")))
    goes_on(world, known, FLAP_MS, FLAP_MS + BACK_MS)
    _allow(world, TOPIC, STATE_TOPIC)
    goes_on(world, world.clients, 2 * FLAP_MS, FLAP_MS + BACK_MS)
    _same_lives(world)
    after = [part.owner for part in world.judge.fold.parts]
    if after != before:
        raise Violation(f"the partitions of the state are owned by {after}; they were by {before}")
    _told(world, "denied")
    dropped = [line for s in world.sidecars.values() for line in s.lines.errors if line.startswith("shard dropped")]
    if dropped:
        raise Violation(f"what was to be written did not wait: {dropped}")


def _same_lives(world: World) -> None:
    """No sidecar has ended, nor its coordinator."""
    for n, s in world.sidecars.items():
        ended = [line for line in s.lines.errors if "ended" in line or "starting anew" in line]
        if s.ended is not None or not s.proc.alive or ended:
            raise Violation(f"sidecar {n} has ended: {s.ended!r} {ended}")
    if len(world.lives) != len(NODES):
        raise Violation("a sidecar was started again")


def _told(world: World, word: str) -> None:
    for n, s in world.sidecars.items():
        if not any(word in line for line in s.lines.errors):
            raise Violation(f"sidecar {n} does not say {word}: {s.lines.errors}")


def a_right_is_taken_away(world: World) -> None:
    """One right alone, for longer than a lease. Groups stand still as far as they need it; all goes on by itself when
    it is given back, and the log names it meanwhile."""
    start(world)
    come(world)
    owners = world.settings(NODES[0]).ownership.group
    kind, name, operations = world.rng.choice(
        (
            (TOPIC, STATE_TOPIC, ()),
            (TOPIC, STATE_TOPIC, (WRITE,)),
            (TOPIC, STATE_TOPIC, (READ,)),
            (GROUP, owners, ()),
            (GROUP, owners, (READ,)),
            (TRANSACTIONAL_ID, f"{STATE_TOPIC}-0", ()),
        )
    )
    _deny(world, kind, name, *operations)
    run_ms(world, LONG_MS)
    _allow(world, kind, name)
    until(world, BOUND_MS, world.settled)
    _same_lives(world)


def a_bug_ends_the_coordinator(world: World) -> None:
    """A bug ends the coordinator of one sidecar, while clients run: another one is started in the same process."""
    start(world)
    come(world, 2)
    victim = world.sidecars[world.rng.choice(NODES)]
    app = victim.app
    assert app is not None and isinstance(app.half, Coordination)
    sessions = len(app.fronts[0].server.sessions)
    world.say(FAULT, f"a bug in sidecar {victim.node_id}")
    world.judge.inside.expected = ("a bug has ended the coordinator",)
    tasks = app.shared.tasks.coordination
    assert tasks is not None
    world.universe.enter(victim.proc, lambda: tasks.broken("planted", KeyError("planted")))
    goes_on(world, world.clients, 20_000, 10_000)
    until(world, BOUND_MS, world.settled)
    if victim.ended is not None or not victim.proc.alive or len(world.lives) != len(NODES):
        raise Violation(f"sidecar {victim.node_id} has ended: {victim.ended!r}")
    if sessions and not app.fronts[0].server.sessions:
        raise Violation("the clients' connections were closed")
    _told_by(victim.lines.errors)


def _told_by(lines: list[str]) -> None:
    if sum(line.startswith("a bug has ended the coordinator") for line in lines) != 1:
        raise Violation(f"the bug is not told once: {lines}")
