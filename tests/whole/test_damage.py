"""A damaged record, and what is known of it when the faults have ended (damage.py): with brokers and no sidecar."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.state.codec import Stamp, StateCodec
from tests.whole.damage import be_sure, damage, inject
from tests.whole.judge import STATE_TOPIC
from tests.whole.loop import virtual_time
from tests.whole.world import NODES, World

GROUP = "g1"
PATIENCE_MS, STEP_MS = 15_000, 5
"""Milliseconds: longer than a broker's session; and shorter than a fenced broker takes to be let in."""


def run_while(world: World, waits: Callable[[], object]) -> None:
    until_ms = world.universe.now_ms + PATIENCE_MS
    while waits():
        assert world.universe.now_ms < until_ms
        world.universe.run_until(world.universe.now_ms + STEP_MS)


def with_the_record_at_one_broker(world: World) -> tuple[int, int]:
    """Returns the former leader, which alone has the record and stands still, and the one that leads now, alone in
    sync."""
    fold, procs, controller = world.judge.fold, world.kafka.procs, world.kafka.cluster.controller
    p = fold.partition_of(GROUP)
    world.universe.run_until(2_000)
    world.prepare_state_topic()
    claim = StateCodec().claim(Stamp(0, 0), NODES[0], "", "", 0, "")
    assert inject(world, p, [(claim.key, claim.value)])
    run_while(world, lambda: not fold.parts[p].claims)

    former = world.kafka.leader(STATE_TOPIC, p)
    assert former is not None
    now, third = (n for n in NODES if n != former)
    procs[third].stand_still()
    run_while(world, lambda: third in controller.image.alive)
    # The former leader's session has to end before that of the next one.
    run_while(world, lambda: controller.brokers[now].heard_ms <= controller.brokers[former].heard_ms)
    damage(world, GROUP)
    procs[former].stand_still()
    run_while(world, lambda: world.kafka.leader(STATE_TOPIC, p) != now)
    procs[third].go_on()
    run_while(world, lambda: not fold.is_whole(p))
    found = controller.image.partition(STATE_TOPIC, p)
    assert found is not None and found.isr == (now,) and found.elr == (former,)
    return former, now


def test_a_record_comes_back_with_the_broker_that_has_it() -> None:
    """A leader that is alone in sync commits nothing, so the one before it may be elected again (seed 1795895706)."""
    world = World(1)
    with virtual_time(world.universe):
        former, now = with_the_record_at_one_broker(world)
        world.kafka.procs[now].stand_still()
        world.kafka.procs[former].go_on()
        world.universe.later(PATIENCE_MS, world.kafka.procs[now].go_on)
        be_sure(world)
        assert world.judge.fold.foreign == {GROUP}


def test_a_record_is_lost_with_the_broker_that_had_it() -> None:
    world = World(1)
    with virtual_time(world.universe):
        former, _ = with_the_record_at_one_broker(world)
        world.kafka.procs[former].go_on()
        be_sure(world)
        world.universe.run_until(world.universe.now_ms + PATIENCE_MS)
        assert not world.judge.fold.foreign
