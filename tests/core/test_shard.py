"""A shard deletes groups without members."""

from __future__ import annotations

from sidecar.core.runtime.events import DeleteGroup
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic


def test_a_group_is_deleted_only_when_it_is_empty() -> None:
    world = World()
    world.topics(topic(1, "t", 2))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    assert world.ask(DeleteGroup("g")).code == Code.NON_EMPTY_GROUP
    a.leave()
    code = world.ask(DeleteGroup("g")).code
    assert code == Code.NONE and "g" not in world.shard.groups
    assert world.compacted() == [], "nothing of the group is left in the log"
    assert world.ask(DeleteGroup("g")).code == Code.GROUP_ID_NOT_FOUND
