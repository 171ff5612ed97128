"""Targets of share groups: the assignor is a plug-in, which may leave partitions out or fail."""

from __future__ import annotations

from sidecar.assign.share import ShareSpec
from sidecar.assign.spec import Result
from sidecar.core.share.config import ShareConfig
from tests.core.share.world import Client, World, topic, topic_id

A = topic_id(1)


def only_the_first(spec: ShareSpec) -> Result:
    """A plug-in that assigns partition 0 to everybody."""
    return {m: {t: ps[:1] for t, ps in spec.assignable.items()} for m in spec.members}


def test_an_assignor_that_leaves_partitions_out_is_not_run_again_and_again() -> None:
    config = ShareConfig(assignor_offload_enable=False, join_wait_ms=0, assignment_interval_ms=0)
    world = World(config, {"simple": only_the_first})
    world.topics(topic(1, "a", 3))
    client = Client(world, "g", "m", ("a",))
    client.heartbeat()
    world.initialised("g", {A: (0, 1, 2)})
    epochs = [client.heartbeat().member_epoch for _ in range(5)]
    assert client.assigned == {A: (0,)}
    assert epochs == [3] * 5
    world.initialised("g", {A: (0, 1)})
    assert client.heartbeat().member_epoch == 4, "what can be assigned has changed"


def test_a_plug_in_is_shown_only_what_may_be_assigned() -> None:
    seen = []

    def watch(spec: ShareSpec) -> Result:
        seen.append((dict(spec.partitions), dict(spec.assignable), {m: dict(s.owned) for m, s in spec.members.items()}))
        return only_the_first(spec)

    config = ShareConfig(assignor_offload_enable=False, join_wait_ms=0, assignment_interval_ms=0)
    world = World(config, {"simple": watch})
    world.topics(topic(1, "a", 3))
    Client(world, "g", "m", ("a",)).heartbeat()
    world.initialised("g", {A: (1, 2)})
    world.initialised("g", {A: (2,)})
    assert seen == [
        ({A: 3}, {}, {"m": {}}),
        ({A: 3}, {A: (1, 2)}, {"m": {}}),
        ({A: 3}, {A: (2,)}, {"m": {A: (1,)}}),
    ]


def test_a_target_of_nothing_has_no_time() -> None:
    world = World()
    world.topics(topic(1, "a", 1))
    Client(world, "g", "m", ("a",)).heartbeat()
    assert (world.group("g").assignment_epoch, world.group("g").assignment_timestamp_ms) == (2, 0)
    world.initialised("g", {A: (0,)})
    assert world.group("g").assignment_timestamp_ms == world.now_ms
