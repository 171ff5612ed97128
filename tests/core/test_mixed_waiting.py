"""A member of the classic protocol that joins a consumer group under offload waits for its partitions."""

from __future__ import annotations

from sidecar.core.classic.embedded import plain_subscription
from sidecar.core.classic.events import JoinGroup, JoinReply, SyncGroup, SyncReply
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic


def joining(member_id: str, instance_id: str | None = None, new_id: str = "uuid") -> JoinGroup:
    protocols = (("range", plain_subscription(["a"])),)
    return JoinGroup("g", member_id, instance_id, "consumer", protocols, 45_000, 60_000, None, "c", "/h", 9, new_id)


def begin(wait_ms: int = 500) -> World:
    """A consumer group with one member that has everything; from now on assignors run in the background."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, join_wait_ms=wait_ms))
    world.topics(topic(1, "a", 4))
    Client(world, "g", "first", ("a",)).heartbeat()
    world.config = ConsumerConfig(assignment_interval_ms=0, join_wait_ms=wait_ms)
    return world


def joined(world: World, token: int) -> JoinReply:
    reply = world.replies.pop(token).answer
    assert isinstance(reply, JoinReply)
    return reply


def test_the_answer_comes_with_the_end_of_the_run() -> None:
    world = begin()
    token = world.request(joining("m"))
    assert token not in world.replies
    world.finish()
    reply = joined(world, token)
    assert (reply.code, reply.generation, reply.leader, reply.members) == (Code.NONE, 3, "", ())
    fx = world.shard.handle(SyncGroup("g", "m", None, reply.generation, "consumer", "range", ()), 100, world.now)
    synced = fx.replies[0].answer
    assert isinstance(synced, SyncReply) and synced.code == Code.NONE
    assert fx.proved == ["g"], "the member may have given these partitions up at another owner"


def test_nobody_waits_for_longer_than_the_limit() -> None:
    world = begin()
    token = world.request(joining("m"))
    world.sleep(499)
    assert token not in world.replies
    world.sleep(1)
    assert joined(world, token).generation == 2


def test_with_a_limit_of_zero_nobody_waits() -> None:
    world = begin(0)
    assert joined(world, world.request(joining("m"))).generation == 2


def test_a_join_that_is_repeated_answers_the_first() -> None:
    world = begin()
    first, second = world.request(joining("m")), world.request(joining("m"))
    assert joined(world, first).code == Code.REBALANCE_IN_PROGRESS
    world.finish()
    assert joined(world, second).code == Code.NONE


def test_a_static_member_that_is_replaced_meanwhile_is_fenced() -> None:
    world = begin()
    first = world.request(joining("", "i", "one"))
    second = world.request(joining("", "i", "two"))
    world.finish()
    assert joined(world, first).code == Code.FENCED_INSTANCE_ID
    assert joined(world, second).member_id == "two"


def test_who_waits_while_the_group_becomes_a_classic_one_comes_again() -> None:
    world = begin()
    token = world.request(joining("m"))
    Client(world, "g", "first", ("a",), epoch=2).leave()
    assert joined(world, token).code == Code.REBALANCE_IN_PROGRESS
    world.finish()
    assert world.shard.groups["g"].kind == "classic"
