"""Every change by an assignor run of a consumer group is written."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from tests.core.world import Client, World, topic, topic_id


def test_a_target_that_lost_a_topic_is_the_same_after_a_takeover() -> None:
    """No partition has moved to another member, and the rest of the target is written all the same."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 2))
    a = Client(world, "g", "a", ("t", "u"))
    a.heartbeat()
    a.heartbeat()
    assert set(world.group("g").target.of("a")) == {topic_id(1), topic_id(2)}
    world.topics(topic(1, "t", 4))
    for _ in range(4):
        a.heartbeat()
    live = world.group("g").target.of("a")
    assert live == {topic_id(1): (0, 1, 2, 3)} == world.rebuilt_group("g").target.of("a")
