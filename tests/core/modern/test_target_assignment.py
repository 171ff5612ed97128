"""Assignor runs that fail, or come too late."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic, topic_id


def test_a_failing_assignor_leaves_the_last_target_and_is_tried_again() -> None:
    world = World(
        ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, assignors=("flaky", "uniform"))
    )
    world.topics(topic(1, "t", 2))
    calls = 0

    def flaky(spec: object) -> dict[str, dict[bytes, tuple[int, ...]]]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ZeroDivisionError("a bug in a plug-in")
        return {"a": {topic_id(1): (0, 1)}}

    world.assignors["flaky"] = flaky
    a = Client(world, "g", "a", ("t",))
    assert a.heartbeat().code == Code.NONE
    assert a.owned == {}
    world.sleep(3200)
    a.heartbeat()
    assert a.owned == {topic_id(1): (0, 1)}


def test_only_the_run_that_is_under_way_makes_a_target() -> None:
    """The first one was too slow, and another was begun in its place."""
    world = World(ConsumerConfig(assignment_interval_ms=0, join_wait_ms=0))
    world.topics(topic(1, "t", 4))
    Client(world, "g", "a", ("t",)).heartbeat()
    (slow,) = world.running
    world.running.clear()
    world.sleep(world.config.assignor_timeout_ms + 2_000)
    Client(world, "g", "a", ("t",), epoch=1).heartbeat()
    (second,) = world.running
    assert second.input.run_id != slow.input.run_id
    world.running = [slow]
    world.finish()
    assert world.group("g").assignment_epoch < second.input.epoch and not world.group("g").target.of("a")
    world.running = [second]
    world.finish()
    assert world.group("g").target.of("a") == {topic_id(1): (0, 1, 2, 3)}


def test_a_member_of_the_run_that_takes_another_place_and_leaves_gets_nothing_of_its_result() -> None:
    """Symptom: the log kept a target of a member that had left, for as long as the group existed."""
    world = World(ConsumerConfig(assignment_interval_ms=0, join_wait_ms=0))
    world.topics(topic(1, "t", 6))
    a, b, c = (Client(world, "g", name, ("t",)) for name in ("a", "b", "c"))
    a.instance_id = "i"
    for each in (a, b, c, a, b, c):
        each.heartbeat()
        world.finish()
    world.topics(topic(1, "t", 9))
    c.heartbeat()
    a.leave(-2)
    b.instance_id, b.epoch, b.owned = "i", 0, {}
    b.heartbeat()
    b.leave()
    world.finish()
    assert list(world.group("g").target) == list(world.rebuilt_group("g").target) == ["c"]
