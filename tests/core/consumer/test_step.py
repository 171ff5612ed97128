"""A member comes back under another instance id."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic


def test_a_member_that_comes_under_another_instance_id_gives_the_former_one_up() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    Client(world, "g", "a", ("t",), instance_id="i1").heartbeat()
    Client(world, "g", "a", ("t",), instance_id="i2").heartbeat()
    assert world.group("g").static_members == {"i2": "a"} == world.rebuilt_group("g").static_members
    assert Client(world, "g", "b", ("t",), instance_id="i1").heartbeat().code == Code.NONE, "nobody has it"
