"""A group of the brokers is taken in and given back while its members live, and its owner dies meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from tests.whole.broker.groups import partition_for
from tests.whole.client import Client, Habits
from tests.whole.faults import MOVES, MOVES_SHARE, MOVES_STREAMS
from tests.whole.judge import STATE_TOPIC
from tests.whole.members import ClassicMember
from tests.whole.moving import BROKER, SIDECARS, Step
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import TAKEN_MS, run_ms, start, wait, watch
from tests.whole.share import ShareMember
from tests.whole.stored import OFFSETS
from tests.whole.streams import StreamsHabits, StreamsMember
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import PARTITIONS, World

SESSION_MS = 20_000
"""The session of members, so long that a group does not only come to an end because sessions do."""
MOVED_MS = 10_000
"""From an order until the group is stable where it should be, with two takeovers in between."""
SOON_MS, AFTER_MS = 800.0, 50.0
REVOKE_MS = 800.0
"""A streams group with a new member is not stable for so long."""
DEAF_MS = 30_000
NATIVE = "n1"
"""A group of the brokers in partition 1, as g2."""
JOINS_MS = 4_000
"""A member that comes, with what it takes a client to try the next broker."""


NEVER: Mapping[str, tuple[Step, ...]] = {
    MOVES: (Step.LEAVING, Step.JOINED, Step.UNASSIGNED, Step.GIVEN_UP, Step.SENDING),
    MOVES_SHARE: (Step.POSTPONED, Step.LEFT, Step.UNASSIGNED, Step.SENDING),
    MOVES_STREAMS: (Step.JOINED,),
}
"""Steps that these groups do not come to. All members of a classic group leave the broker at once, and are sent back at
once. A share group is always stable, its members wait for no others, and its placeholder joins beside them."""
STEPS = {group_id: tuple(s for s in Step if s not in never) for group_id, never in NEVER.items()}


def _habits(group_id: str) -> tuple[type[Client], Habits]:
    if group_id == MOVES_STREAMS:
        return StreamsMember, StreamsHabits(group_id, ("t1", "t2"), commit_ms=200.0, revoke_ms=REVOKE_MS)
    kind = ShareMember if group_id == MOVES_SHARE else ClassicMember
    return kind, Habits(group_id, ("t1", "t2"), session_ms=SESSION_MS, commit_ms=200.0)


def _come(world: World, group_id: str = MOVES) -> None:
    """Two members, and the group is stable at the broker."""
    start(world)
    world.judge.moving.homes[group_id] = BROKER
    _join(world, group_id)


def _join(world: World, group_id: str) -> None:
    for _ in range(2):
        world.add_client(*_habits(group_id))
    until(world, BOUND_MS, world.settled)


def _order(world: World, managed: bool, group_id: str = MOVES) -> None:
    world.say(FAULT, f"{group_id} is to be {'taken in' if managed else 'given back'}")
    world.order(group_id, managed)


def _order_until_recorded(world: World, managed: bool, group_id: str) -> None:
    _order(world, managed, group_id)
    home = SIDECARS if managed else BROKER
    if not watch(world, MOVED_MS, lambda: world.judge.moving.homes[group_id] == home):
        raise Violation(f"it is not recorded within {MOVED_MS:,} ms that {group_id} goes to {home}")


def _owner_dies(world: World, group_id: str = MOVES) -> None:
    """At some moment of a move. It is started again at the end."""
    n = world.judge.owner_of(group_id)
    world.say(FAULT, f"sidecar {n}, which owns {group_id}, is killed")
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


def owners_die_in_moves_of_a_classic_group(world: World) -> None:
    """At each step of a move in, and of a move out."""
    _owners_die(world, MOVES)


def owners_die_in_moves_of_a_share_group(world: World) -> None:
    """At each step of a move in, and of a move out."""
    world.kinds = ("share",)
    _owners_die(world, MOVES_SHARE)


def owners_die_in_moves_of_a_streams_group(world: World) -> None:
    """At each step of a move in, and of a move out."""
    world.kinds = ("streams",)
    _owners_die(world, MOVES_STREAMS)


def _owners_die(world: World, group_id: str) -> None:
    """Moves in and out by turns, with an owner that dies in each. Some are turned back before they are over, but not
    twice in a row: a member that the broker still has, while it joins here anew, is there until its session ends."""
    world.serve_kinds()
    _come(world, group_id)
    comes, goes = ([s for s in STEPS[group_id] if s.comes is way] for way in (True, False))
    world.rng.shuffle(comes)
    world.rng.shuffle(goes)
    over = True
    for n in range(max(len(comes), len(goes))):
        for step in (comes[n % len(comes)], goes[n % len(goes)]):
            _owner_dies_at(world, group_id, step)
            run_ms(world, world.rng.choice((0, TAKEN_MS)))
            world.start_the_stopped()
            over = not over or world.rng.random() < 0.5
            if over:
                _ends(world)
    _ends(world)


def _owner_dies_at(world: World, group_id: str, step: Step) -> None:
    """At this step or soon after it. A move may go past a step."""
    judge = world.judge
    # Whoever gave the last order says it again until it is answered, and that would undo this one.
    wait(world, MOVED_MS, lambda: f"an answer to the last order of {group_id}" if group_id in world.ordering else "")
    if step is Step.POSTPONED:
        world.add_client(*_habits(group_id))
    _order_until_recorded(world, step.comes, group_id)

    def come() -> bool:
        now = judge.step_of(group_id)
        return now is None or (now is step and world.sidecars[judge.owner_of(group_id)].proc.alive)

    watch(world, MOVED_MS, come)
    if judge.step_of(group_id) is step:
        world.say(FAULT, f"{group_id} has come to this step: {step}")
        judge.figures[step] += 1
        if world.rng.random() < 0.5:
            run_ms(world, world.rng.uniform(0, AFTER_MS))
        _owner_dies(world, group_id)


def members_stand_still_while_their_group_leaves(world: World) -> None:
    """The members are silent until their sessions are over and their streams group is the broker's, which has never
    had it and answers GROUP_ID_NOT_FOUND. That ends Kafka Streams: sidecars answer UNKNOWN_MEMBER_ID."""
    world.kinds, group_id = ("streams",), MOVES_STREAMS
    world.more["streams.session_timeout_ms"] = Habits.session_ms
    world.serve_kinds()
    start(world)
    world.judge.moving.homes[group_id] = BROKER
    _order_until_recorded(world, True, group_id)
    _join(world, group_id)
    for c in world.clients:
        world.say(FAULT, f"{c.name} stands still")
        c.proc.stand_still()
    _order(world, False, group_id)
    has_records = world.judge.fold.has_records
    wait(world, 2 * MOVED_MS, lambda: f"the end of {group_id}" if has_records(group_id) else "")
    run_ms(world, world.rng.uniform(0, SOON_MS))
    for c in world.clients:
        c.proc.go_on()
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
