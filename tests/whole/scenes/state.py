"""Settings that differ or do not do, and records that cannot be read."""

from __future__ import annotations

from sidecar.state.keys import encode_key
from tests.whole.broker.batches import of_records
from tests.whole.broker.groups import partition_for
from tests.whole.client import Habits
from tests.whole.faults import GROUPS
from tests.whole.judge import STATE_TOPIC
from tests.whole.members import ClassicMember, ConsumerMember
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import GONE_MS, an_owner, come, goes_on, run_ms, start
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World


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


def strangers_come(world: World) -> None:
    """The brokers have an authorizer. Who may not read a group, or not even see it, is told so by every sidecar, also
    while an owner is being replaced; and members notice nothing."""
    start(world)
    come(world)
    for group_id, kind in GROUPS.items():
        for hidden in (False, True):
            world.add_stranger(kind, Habits(group_id, ("t1", "t2")), hidden)
    run_ms(world, 5_000)
    n = an_owner(world)
    world.say(FAULT, f"sidecar {n} is killed")
    world.sidecars[n].proc.crash()
    goes_on(world, world.clients, 10_000, GONE_MS)
    for c in world.strangers:
        c.proc.crash()
    until(world, BOUND_MS, world.settled)
