"""A request that names a topic which the list lacks waits for a look at it, and is handled as if it came then."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.runtime.topic_lookup import LookFirst
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import World, topic


def _world(wait_ms: int = 500) -> World:
    world = World(ConsumerConfig(assignor_offload_enable=False, join_wait_ms=wait_ms))
    world.sees = False
    world.topics(topic(1, "there", 1))
    return world


def _join(*names: str, member: str = "m1") -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member, 0, None, None, 60_000, names, None, None, {}, "c", "/h", 1)


def _beat(world: World, *names: str) -> ConsumerHeartbeat:
    hb = _at(_join(*names), world.group("g").members["m1"].member_epoch)
    hb.topic_names = names or None
    return hb


def _at(hb: ConsumerHeartbeat, epoch: int) -> ConsumerHeartbeat:
    hb.member_epoch, hb.owned, hb.rebalance_timeout_ms = epoch, None, -1
    return hb


def _looked_for(world: World) -> list[tuple[str, ...] | None]:
    return [look.names for look in world.looks]


def test_a_join_that_names_a_missing_topic_waits_for_a_look() -> None:
    world = _world()
    token = world.request(_join("new", "there"))
    assert not world.replies and "g" not in world.shard.groups and _looked_for(world) == [("new",)]
    world.topics(topic(1, "there", 1), topic(2, "new", 2))
    world.see()
    reply = world.replies.pop(token).answer
    other = _world()
    other.topics(topic(1, "there", 1), topic(2, "new", 2))
    assert reply == other.ask(_join("new", "there"))
    assert world.group("g").epoch == other.group("g").epoch


def test_a_topic_that_is_not_there_is_looked_up_once_for_what_a_member_says() -> None:
    world = _world()
    token = world.request(_join("new"))
    world.see()
    world.replies.pop(token)
    for _ in range(3):
        world.ask(_beat(world, "new"))
        world.ask(_beat(world))
    world.request(_beat(world, "new", "newer"))
    assert _looked_for(world) == [("newer",)]


def test_topics_that_are_there_are_not_looked_up() -> None:
    world = _world()
    world.ask(_join("there"))
    world.ask(_beat(world, "there"))
    assert not world.looks


def test_a_request_that_is_refused_anyway_waits_for_nothing() -> None:
    world = _world()
    world.ask(_at(_join("new"), 7))
    world.ask(_join("new", member=""))
    assert not world.looks


def test_without_join_wait_ms_the_answer_comes_at_once_and_the_look_all_the_same() -> None:
    world = _world(wait_ms=0)
    world.ask(_join("new"))
    assert world.looks == [LookFirst("g", ("new",), None, 1, 0)]


def test_more_missing_topics_than_a_look_names_have_all_topics_read() -> None:
    world = _world()
    world.request(_join(*(f"new-{n}" for n in range(101))))
    assert _looked_for(world) == [None]


def test_a_member_of_the_classic_protocol_waits_as_well() -> None:
    world = _world()
    world.ask(_join("there"))
    world.request(ClassicClient("old", protocols=(("range", subscription(["there", "new"])),)).join())
    assert _looked_for(world) == [("new",)]


def test_a_group_that_is_upgraded_keeps_what_its_members_have_of_a_new_topic() -> None:
    """Members' assignments are known by name; those of a topic that the list lacks would be lost."""
    world = _world()
    world.classic = replace(world.classic, initial_rebalance_delay_ms=0)
    world.request(ClassicClient("old", version=3, protocols=(("range", subscription(["new"])),)).join())
    assert not world.looks
    world.request(_join("there"))
    assert _looked_for(world) == [("new",)] and world.shard.groups["g"].kind == "classic"


def test_a_second_member_of_a_known_pattern_has_all_topics_read_beside() -> None:
    world = _world()
    for member in ("m1", "m2"):
        hb = ConsumerHeartbeat("g", member, 0, None, None, 60_000, (), "the.*", None, {}, "c", "/h", 1)
        world.request(hb)
        world.resolve()
    assert world.looks == [LookFirst("g", None, None, 0, 0)]


def test_new_topics_are_matched_at_once_and_partitions_are_no_reason() -> None:
    world = _world()
    world.request(ConsumerHeartbeat("g", "m1", 0, None, None, 60_000, (), "the.*", None, {}, "c", "/h", 1))
    world.resolve()
    world.topics(topic(1, "there", 2))
    assert not world.asked
    world.topics(topic(1, "there", 2), topic(2, "then", 1))
    assert [ask.reads_all_topics for ask in world.asked] == [False], "the list has just been read"
    world.resolve()
    assert world.group("g").regexes["the.*"].topics == ("then", "there")


def test_where_access_is_asked_for_new_topics_are_matched_with_the_next_heartbeat() -> None:
    world = _world()
    world.asks_access = True
    world.request(ConsumerHeartbeat("g", "m1", 0, None, None, 60_000, (), "the.*", None, {}, "c", "/h", 1))
    world.resolve()
    world.topics(topic(1, "there", 1), topic(2, "then", 1))
    assert not world.asked
    world.request(_beat(world))
    assert len(world.asked) == 1
