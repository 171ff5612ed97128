"""The table of subscriptions of a group."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from tests.core.world import Client, World, topic


def test_what_is_kept_of_subscriptions_does_not_grow_with_their_changes() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(*(topic(n, f"t{n}", 1) for n in range(1, 101)))
    a = Client(world, "g", "a", ("t1",))
    a.heartbeat()
    for n in range(2, 101):
        hb = ConsumerHeartbeat("g", "a", a.epoch, topic_names=(f"t{n}",), owned={})
        reply = world.send(hb)
        a.epoch = reply.member_epoch
    assert world.group("g").subscribed_topics() == {"t100"}
    assert len(world.group("g")._ids) < 40
