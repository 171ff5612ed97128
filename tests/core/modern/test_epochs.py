"""A group has settled in its epoch when its last member has its assignment."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.runtime.effects import Observe
from tests.core.world import Client, World, topic


def test_how_long_a_group_took_to_settle_is_told_once_when_its_last_member_is_there() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, join_wait_ms=0))
    world.topics(topic(1, "t", 4))

    def settle_times_ms() -> list[int]:
        found = [n.ms for n in world.notes if isinstance(n, Observe) and n.metric == "settle_seconds"]
        world.notes.clear()
        return found

    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    settle_times_ms()
    world.sleep(1_000)
    b.heartbeat()
    world.sleep(2_000)
    for client in (a, a):
        client.heartbeat()
        assert settle_times_ms() == []
    world.sleep(3_000)
    b.heartbeat()
    assert settle_times_ms() == [5_000]
    for client in (a, b):
        client.heartbeat()
    assert settle_times_ms() == []
