"""A member comes back under another instance id."""

from __future__ import annotations

import pytest

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


def test_a_static_member_that_takes_over_another_instance_id_frees_its_own() -> None:
    """Symptom: two members that exchanged their instance ids; one id stayed with the first of them for ever."""
    world = World()
    world.topics(topic(1, "t", 4))
    first, second = (Client(world, "g", f"m{n}", names=("t",), instance_id=f"i{n}") for n in (1, 2))
    for member in (first, second):
        member.heartbeat()
    for member, instance_id in ((first, "i2"), (second, "i1")):
        member.leave(-2)
        member.instance_id = instance_id
    for member in (first, second):
        assert member.heartbeat().code == Code.NONE
        group = world.group("g")
        assert group.static_members == {m.instance_id: m.member_id for m in group.members.values()}
    assert world.rebuilt_group("g").static_members == {"i1": "m2", "i2": "m1"}


@pytest.mark.parametrize("own", [None, "i2"])
def test_a_member_that_takes_over_another_s_instance_id_leaves_no_partition_without_owner(own: str | None) -> None:
    """Symptom: the group was Stable, and nobody had the partitions that the member had before."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    first = Client(world, "g", "m1", ("t",), instance_id="i1")
    second = Client(world, "g", "m2", ("t",), instance_id=own)
    for member in (first, second) * 3:
        member.heartbeat()
    assert len(second.partitions()) == 2
    first.leave(-2)
    if own is not None:
        second.leave(-2)
    second.instance_id, second.epoch = "i1", 0
    for _ in range(3):
        assert second.heartbeat().code == Code.NONE
    assert len(second.partitions()) == 4 and list(world.group("g").members) == ["m2"]
