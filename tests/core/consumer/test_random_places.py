"""Random members that leave, come back and take the places of static members, while assignor runs are under way: the
log has targets and expressions of present members alone, and a new owner has the same group."""

from __future__ import annotations

import random

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from tests.core.test_random_groups import same_state
from tests.core.world import World, topic
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 100
EVENTS = 150
MEMBERS, INSTANCES = ("m1", "m2", "m3", "m4"), (None, None, "i1", "i2")


def test_random_places(seeds: Seeds) -> None:
    hold(random_places, seeds.of(SEEDS), alone("tests/core/consumer/test_random_places.py::test_random_places"))


def random_places(seed: int) -> None:
    rng = random.Random(seed)
    world = World(ConsumerConfig(join_wait_ms=0, assignment_interval_ms=0))
    partitions = 4
    for _ in range(EVENTS):
        what = rng.random()
        if what < 0.15:
            world.finish()
        elif what < 0.2:
            world.resolve()
        elif what < 0.25:
            partitions += 1
            world.topics(topic(1, "a", partitions), topic(2, "b", 2))
        else:
            # Not `world.send`: these are no clients, which would end at some of the answers.
            world.apply(world.shard.handle(some_heartbeat(world, rng), 1, world.now))
        if "g" in world.shard.groups:
            only_members_are_in_the_log(world)


def some_heartbeat(world: World, rng: random.Random) -> ConsumerHeartbeat:
    member_id, instance_id = rng.choice(MEMBERS), rng.choice(INSTANCES)
    members = world.group("g").members if "g" in world.shard.groups else {}
    present = members[member_id].member_epoch if member_id in members else 0
    epoch = rng.choice((0, 0, present, present, LEAVE_EPOCH, STATIC_LEAVE_EPOCH))
    if epoch:
        return ConsumerHeartbeat("g", member_id, epoch, instance_id=instance_id, owned={})
    regex = rng.choice(("", "a|b", "b.*", "b+", "[ab]"))
    return ConsumerHeartbeat(
        "g",
        member_id,
        0,
        instance_id=instance_id,
        rebalance_timeout_ms=30_000,
        topic_names=("a",),
        topic_regex=regex,
        owned={},
    )


def only_members_are_in_the_log(world: World) -> None:
    group, rebuilt = world.group("g"), world.rebuilt_group("g")
    same_state(group, rebuilt)
    for each in (group, rebuilt):
        assert set(each.target) <= each.members.keys()
        assert each.regexes.keys() <= set(each.subscriptions.regexes())
