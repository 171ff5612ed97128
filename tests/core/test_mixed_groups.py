"""What the simulation (tests/sim) found in groups that change their protocol, each as the shortest script that shows
it."""

from __future__ import annotations

from sidecar.core.classic.events import JoinReply, LeaveReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.errors import Code
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic


def _world() -> World:
    world = World()
    world.topics(topic(1, "t", 2))
    return world


def _classic(name: str, instance_id: str | None = None) -> ClassicClient:
    return ClassicClient(
        name, version=9 if instance_id else 3, instance_id=instance_id, protocols=(("range", subscription(["t"])),)
    )


def _joins(world: World, client: ClassicClient) -> None:
    """To a consumer group, which answers at once."""
    reply = world.ask(client.join())
    assert isinstance(reply, JoinReply)
    client.joined(reply)


def test_a_downgraded_group_leaves_no_record_of_a_consumer_group() -> None:
    """Members, their current assignments and instance ids stayed in the log, so that the next owner could not read the
    group (seed 5)."""
    world = _world()
    new = Client(world, "g", "new", names=("t",), instance_id="i1")
    new.heartbeat()
    old = _classic("old", "i2")
    _joins(world, old)
    assert world.group("g").members.keys() == {"new", old.member_id}

    new.leave()

    live = world.shard.groups["g"]
    assert isinstance(live, ClassicGroup)
    assert {str(r.kind) for r in world.compacted()} == {"classic_group", "classic_member", "classic_assignment"}
    assert world.rebuilt().groups["g"] == live


def test_a_group_whose_last_member_left_while_it_joined_becomes_a_consumer_group() -> None:
    """Its first rebalance waits for its delay, whoever is there; a protocol of nobody was looked for (seed 30)."""
    world = _world()
    old = _classic("old")
    world.request(old.join())
    live = world.shard.groups["g"]
    assert isinstance(live, ClassicGroup)
    old.member_id = next(iter(live.members))
    left = world.ask(old.leave())
    assert isinstance(left, LeaveReply)
    assert left.members[0].code == Code.NONE
    assert not live.members

    reply = Client(world, "g", "new", names=("t",)).heartbeat()

    assert reply.code == Code.NONE
    assert world.group("g").members.keys() == {"new"}
