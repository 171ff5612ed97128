"""A static member leaves for a while (epoch -2)."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from tests.core.world import Client, World, topic, topic_id


def test_a_static_member_that_left_for_a_while_keeps_its_partitions_since_ever() -> None:
    """The member that comes in its place was never told an epoch in which it got them (Kafka's epoch 0)."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 2))
    a = Client(world, "g", "a", ("t",), instance_id="i1")
    a.heartbeat()
    a.heartbeat()
    assert world.group("g").members["a"].assigned == {topic_id(1): {0: 2, 1: 2}}
    a.leave(-2)
    for group in (world.group("g"), world.rebuilt_group("g")):
        assert group.members["a"].assigned == {topic_id(1): {0: 0, 1: 0}} and group.members["a"].member_epoch == -2
