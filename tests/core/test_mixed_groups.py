"""Bugs that the simulation (tests/sim) found in groups that change their protocol, each as its shortest script."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sidecar.core.classic.embedded import assignment
from sidecar.core.classic.events import JoinReply, LeaveReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.vocabulary.errors import Code
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic, topic_id


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
    """The group's first rebalance waits for its delay; a protocol of no members was looked for (seed 30)."""
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


def test_topics_of_a_consumer_group_without_members_of_the_consumer_protocol_are_looked_at() -> None:
    """A group that may not be downgraded hears only the heartbeats of its classic members (seed 1477)."""
    world = _world()
    world.config = replace(world.config, migration_policy="upgrade", assignment_interval_ms=0)
    new = Client(world, "g", "new", names=("t",))
    new.heartbeat()
    old = _classic("old")
    _joins(world, old)
    new.leave()
    _joins(world, old)
    assert world.ask(old.beat()).code == Code.NONE
    world.topics(topic(1, "t", 3))

    assert world.ask(old.beat()).code == Code.REBALANCE_IN_PROGRESS

    _joins(world, old)
    assert world.group("g").members[old.member_id].assigned_partitions() == {topic_id(1): (0, 1, 2)}


def test_a_group_that_is_upgraded_before_it_has_rebalanced_knows_who_has_what() -> None:
    """After a downgrade the target of the last epoch counted as assigned, though a member still had what it gives to
    another: upgraded again, that partition had two owners, both of the present epoch (seeds 4434 and 6081)."""
    world = _world()
    world.config = replace(world.config, assignment_interval_ms=0)
    world.topics(topic(1, "t", 2), topic(2, "u", 1))
    leaving = Client(world, "g", "leaving", names=("u",))
    leaving.heartbeat()
    has, waits = _classic("has"), _classic("waits")
    waits.made["waits"] = 1  # member ids are made of that
    _joins(world, has)
    assert world.group("g").members[has.member_id].assigned_partitions() == {topic_id(1): (0, 1)}
    _joins(world, waits)
    target = world.group("g").target.of(waits.member_id)
    assert target
    assert not world.group("g").members[waits.member_id].assigned

    leaving.leave()
    Client(world, "g", "coming", names=("u",)).heartbeat()

    assert world.group("g").owners[topic_id(1)] == {0: has.member_id, 1: has.member_id}


def test_what_a_group_was_assigned_before_its_upgrade_may_be_out_of_date() -> None:
    """A static member that comes back with the consumer protocol and the same subscription asks for no new target; but
    the topic has grown since the leader assigned."""
    world = _world()
    old = _classic("old", "i1")
    world.request(old.join())
    world.sleep(world.classic.initial_rebalance_delay_ms)
    reply = world.replies.popitem()[1].answer
    assert isinstance(reply, JoinReply)
    old.joined(reply)
    world.ask(old.sync({old.member_id: assignment(3, [("t", (0, 1))])}))
    world.topics(topic(1, "t", 3))

    new = Client(world, "g", "new", names=("t",), instance_id="i1")
    new.heartbeat()
    world.sleep(2_000)
    new.heartbeat()

    assert new.partitions() == {(topic_id(1), 0), (topic_id(1), 1), (topic_id(1), 2)}


def test_the_member_that_makes_a_group_classic_syncs_with_what_all_its_members_know() -> None:
    """The member's own first protocol may be one that the others do not know."""
    world = _world()
    last = Client(world, "g", "consumer", ("t",), instance_id="i")
    for _ in range(3):
        last.heartbeat()
    other = _classic("other")
    _joins(world, other)
    last.heartbeat()
    last.leave(-2)
    said = subscription(["t"])
    both = (("cooperative-sticky", said), ("range", said))
    came = ClassicClient("came", instance_id="i", protocols=both, made=Counter({"": 1, "i": 1, "came": 1}))
    reply = world.ask(came.join())
    group = world.shard.groups["g"]
    assert isinstance(group, ClassicGroup) and group.protocol == "range"
    assert isinstance(reply, JoinReply) and (reply.code, reply.protocol) == (Code.NONE, "range")


def test_who_a_classic_member_is_comes_before_what_it_says() -> None:
    """Kafka names the first fault that it finds in a JoinGroup to a consumer group: is there room, do the protocols
    fit, has it a member id, is it that member, and only then, can its subscription be read?"""
    world = _world()
    Client(world, "g", "new", names=("t",)).heartbeat()
    unreadable = (("range", b"\xff"),)

    def code_of(member_id: str, instance_id: str | None = None) -> Code:
        client = ClassicClient("old", version=9, instance_id=instance_id, protocols=unreadable, member_id=member_id)
        reply = world.ask(client.join())
        assert isinstance(reply, JoinReply)
        return reply.code

    assert code_of("") == Code.MEMBER_ID_REQUIRED
    assert code_of("m") == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code_of("m", "nobody has it") == Code.UNKNOWN_MEMBER_ID
    assert code_of("", "i") == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_forgets_the_protocols_that_no_member_has_any_more() -> None:
    """Symptom: each name that a member of the classic protocol ever had stayed in memory."""
    world = _world()
    Client(world, "g", "new", names=("t",)).heartbeat()
    old = _classic("old")
    for name in ("x", "y", "z"):
        old.protocols = (("range", subscription(["t"])), (name, b""))
        _joins(world, old)
    assert world.group("g").classic_protocols == {"range": 1, "z": 1}
    world.ask(old.leave())
    assert world.group("g").classic_protocols == {}


def test_a_member_of_the_classic_protocol_has_its_own_timers_while_it_must_revoke() -> None:
    """Symptom: the rebalance timeout of the consumer protocol removed it, though it had joined again and synced in
    time."""
    world = World()
    world.topics(topic(1, "t", 2), topic(2, "u", 1))
    other, another = Client(world, "g", "other", names=("u",)), Client(world, "g", "another", names=("t",))
    old = ClassicClient("old", version=3, session_ms=600_000, rebalance_ms=60_000)

    def joins_with(owned: dict[str, list[int]]) -> None:
        old.protocols = (("cooperative-sticky", subscription(["t"], owned)),)
        _joins(world, old)

    other.heartbeat()
    world.sleep(1_100)
    joins_with({})
    world.ask(old.sync({}))
    another.heartbeat()
    world.sleep(1_100)
    joins_with({"t": [0, 1]})
    assert world.group("g").members[old.member_id].revokes
    for _ in range(11):
        world.sleep(5_000)
        other.heartbeat()
        another.heartbeat()
    world.ask(old.sync({}))
    assert world.ask(old.beat()).code == Code.REBALANCE_IN_PROGRESS
    world.sleep(10_000)
    assert old.member_id in world.group("g").members, "it has the rebalance timeout to join again from here"
