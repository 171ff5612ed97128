"""The group's commands for its placeholder member, and when it gives them."""

from __future__ import annotations

from sidecar.core.share.adoption import AdoptShare, NativeShareMember
from sidecar.core.share.events import (
    Operation,
    PlaceholderLeft,
    ShareAdmin,
    ShareAdminReply,
    ShareHeartbeat,
    ShareInitialised,
)
from sidecar.core.share.placeholder import HoldPlaceholder, LeavePlaceholder
from tests.core.share.world import Client, World, topic, topic_id

A = topic_id(1)


def world_of(*topics: str) -> tuple[World, Client]:
    world = World()
    world.topics(*(topic(i + 1, n, 2) for i, n in enumerate(topics)))
    client = Client(world, "g", "m", tuple(topics) or ("a",))
    client.heartbeat()
    return world, client


def take_commands(world: World) -> list[HoldPlaceholder | LeavePlaceholder]:
    commands, world.commands = world.commands, []
    return commands


def test_nothing_is_asked_for_twice() -> None:
    world, client = world_of("a")
    assert len(take_commands(world)) == 1
    for _ in range(3):
        client.heartbeat()
        world.sleep(3_000)
        world.initialised("g", {A: (0,)}, whole=False)
    Client(world, "g", "n", ("a",)).heartbeat()
    assert take_commands(world) == []
    world.initialised("g", {A: (0, 1)})
    assert [c.complete for c in take_commands(world) if isinstance(c, HoldPlaceholder)] == [True]


def test_a_steady_group_writes_nothing_and_asks_for_nothing() -> None:
    world, client = world_of("a")
    world.initialised("g", {A: (0, 1)})
    client.heartbeat()
    at = len(world.log)
    for _ in range(5):
        world.initialised("g", {A: (0, 1)})
        world.initialised("g", {A: (1,)}, whole=False)
        client.heartbeat()
        world.sleep(1_000)
    assert world.log[at:] == []


def test_topics_that_are_gone_leave_no_name() -> None:
    """Symptom: of each topic that was ever initialised the owner kept the name, as long as it had the group."""
    world, client = world_of("a", "b")
    for number in range(10, 14):
        world.topics(topic(1, "a", 2), topic(number, "b", 2))
        world.initialised("g", {A: (0, 1), topic_id(number): (0, 1)})
        client.heartbeat()
        placeholder = world.group("g").placeholder
        assert placeholder is not None and placeholder.names == {A: "a", topic_id(number): "b"}


def test_there_is_none_without_a_topic() -> None:
    world, client = world_of()
    assert take_commands(world) == []
    world.topics(topic(1, "a", 1))
    assert [c.topic_names for c in take_commands(world) if isinstance(c, HoldPlaceholder)] == [("a",)]
    world.topics()
    assert take_commands(world) == [], "the broker takes no member without topics"
    client.leave()
    assert [type(c) for c in take_commands(world)] == [LeavePlaceholder]


def test_it_leaves_although_the_broker_has_not_taken_it_yet() -> None:
    world, client = world_of("a")
    client.leave()
    assert take_commands(world)[1:] == [LeavePlaceholder("g", "")]
    world.has_left("g")
    client.heartbeat()
    assert [type(c) for c in take_commands(world)] == [HoldPlaceholder]


def test_each_hold_has_a_number_of_its_own() -> None:
    world, client = world_of("a")
    first = world.held["g"].hold_id
    client.leave()
    client.heartbeat()
    assert world.held["g"].hold_id != first
    world.initialised("g", {A: (0,)}, hold_id=first)
    assert world.group("g").initialised == {}


def test_the_time_is_that_of_when_the_broker_took_it() -> None:
    world, _ = world_of("a")
    world.initialised("g", {A: (0,)})
    world.sleep(5_000)
    world.initialised("g", {A: (0, 1)})
    record = world.group("g").placeholder
    assert record is not None and record.since_ms == world.now_ms - 5_000
    assert (record.keeper, record.topic_names, record.names) == (7, ("a",), {A: "a"})
    world.takeover()
    world.sleep(1_000)
    world.initialised("g", {A: (0, 1)})
    record = world.group("g").placeholder
    assert record is not None and (record.member_id, record.since_ms) == ("placeholder-2", world.now_ms)


def test_what_comes_for_a_group_that_is_gone_is_dropped() -> None:
    world = World()
    world.deliver(ShareInitialised("g", 1, "p", 7, ("a",), {A: (0,)}, {A: "a"}))
    world.deliver(PlaceholderLeft("g", "p"))
    assert world.shard.groups == {} and world.log == []


def test_a_former_owners_member_is_removed_even_where_the_group_is_empty_by_then() -> None:
    world, client = world_of("a")
    world.initialised("g", {A: (0, 1)})
    take_commands(world)
    world.takeover()
    client.leave()
    world.sleep(1)
    assert take_commands(world) == [LeavePlaceholder("g", "placeholder-1")]
    world.has_left("g")
    assert world.group("g").placeholder is None


def test_whoever_administers_waits_also_for_one_that_has_not_been_told_of_yet() -> None:
    """Symptom: where the last member left before the placeholder had reported, the request went to the broker beside
    it, which refused it: its group had a member."""
    world, client = world_of("a")
    client.leave()
    told = world.ask(ShareAdmin("g", Operation.ALTER))
    assert told == ShareAdminReply(exists=True, placeholder=True)
    world.has_left("g")
    assert world.ask(ShareAdmin("g", Operation.ALTER)) == ShareAdminReply(exists=True)


def test_the_record_of_one_that_had_no_name_yet_goes_with_it() -> None:
    """A group that came from the broker knows what is initialised before it has a placeholder.

    Symptom: its record stayed for ever, and each new owner had the placeholder leave once more."""
    world = World()
    world.topics(topic(1, "a", 2))
    member = NativeShareMember("m", None, 5, "c", "/h", ("a",), {A: (0, 1)})
    world.ask(AdoptShare("g", 5, 5, "simple", (member,), {A: "a"}, "moved"))
    assert world.ask(ShareHeartbeat("g", "m", -1)).code == 0
    world.deliver(PlaceholderLeft("g", "placeholder-1"))
    assert world.group("g").placeholder is None


def test_one_that_has_left_while_members_name_no_topic_that_exists_is_forgotten_when_these_leave() -> None:
    """Symptom: its record stayed, as nothing was asked for a second time."""
    world, client = world_of("a")
    world.initialised("g", {A: (0, 1)})
    client.leave()
    other = Client(world, "g", "n", ("later",))
    other.heartbeat()
    world.has_left("g")
    other.leave()
    assert world.group("g").placeholder is None
