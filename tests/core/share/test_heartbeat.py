"""Heartbeats of members of share groups: limits, and answers that a front may remember."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.core.runtime.turn import RECORD_BYTES
from sidecar.core.share.adoption import AdoptShare
from sidecar.core.share.config import ShareConfig
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.vocabulary.errors import Code
from tests.core.share.world import Client, World, topic, topic_id

A = topic_id(1)


def test_a_group_holds_no_more_than_it_may() -> None:
    world = World()
    world.topics(topic(1, "a", 1))
    turn = world.shard._turn
    turn.ports = replace(turn.ports, limits=MemberLimits(group_bytes=3_000))
    assert Client(world, "g", "m1", ("a",)).heartbeat().code == Code.NONE
    assert Client(world, "g", "m2", ("a",)).heartbeat().code == Code.NONE
    refused = Client(world, "g", "m3", ("a",)).heartbeat()
    assert refused.code == Code.GROUP_MAX_SIZE_REACHED and "3000 bytes" in (refused.message or "")
    assert Client(world, "g", "m1", ("a",)).heartbeat().code == Code.NONE, "it needs no more than before"


@pytest.mark.parametrize(
    ("member", "rack", "text"),
    [
        ("\u00a0", "\u3000", None),
        ("\x00 ", None, "MemberId can't be empty."),
        ("m", "\x01", "RackId can't be empty."),
    ],
)
def test_blank_ids_are_those_of_java(member: str, rack: str | None, text: str | None) -> None:
    """Java's trim takes away the characters up to U+0020 and no others."""
    answer = World().ask(ShareHeartbeat("g", member, 0, rack, ("a",)))
    assert answer.message == text and answer.code == (Code.NONE if text is None else Code.INVALID_REQUEST)


def test_a_request_must_fit_into_a_record() -> None:
    assert Client(World(), "g", "m", ("a" * (RECORD_BYTES + 1),)).heartbeat().code == Code.UNKNOWN_SERVER_ERROR


def test_a_full_group_tells_an_unknown_member_so_whatever_its_epoch() -> None:
    """Row 12 of the request's checks comes before row 13. Such a member would join next, and be told so then."""
    world = World(ShareConfig(assignor_offload_enable=False, join_wait_ms=0, max_size=1))
    Client(world, "g", "m", ("a",)).heartbeat()
    fx = world.shard.handle(ShareHeartbeat("g", "other", 5), 1, world.now)
    assert [r.answer.code for r in fx.replies] == [Code.GROUP_MAX_SIZE_REACHED]


def test_a_remembered_answer_ends_with_the_group_s_next_change() -> None:
    world = World()
    world.topics(topic(1, "a", 2))
    client = Client(world, "g", "m", ("a",))
    client.heartbeat()
    world.initialised("g", {A: (0, 1)})
    client.heartbeat()

    def grant() -> int | None:
        found = world.replies.pop(world.request(ShareHeartbeat("g", "m", client.epoch, client_id="m"))).grant
        return None if found is None else found.revision

    first = grant()
    assert first is not None and grant() == first
    soft = world.shard.soft["g"]
    for change in (
        lambda: world.initialised("g", {A: (0,)}),
        lambda: world.topics(topic(1, "a", 3)),
        lambda: Client(world, "g", "n", ("a",)).heartbeat(),
    ):
        before = soft.revision
        change()
        assert soft.revision > before


def test_the_session_lasts_from_what_the_front_has_answered() -> None:
    world = World()
    world.topics(topic(1, "a", 1))
    Client(world, "g", "m", ("a",)).heartbeat()
    for _ in range(5):
        world.sleep(40_000, 1_000)
        world.shard.touch("g", "m", world.now)
    assert "m" in world.group("g").members
    world.sleep(46_000, 1_000)
    assert "m" not in world.group("g").members


def test_a_join_is_told_of_the_first_partitions_though_it_asked_twice() -> None:
    """The member has given up its first request, whose answer assigns nothing."""
    world = World(ShareConfig(assignor_offload_enable=False))
    world.topics(topic(1, "a", 1))
    join = ShareHeartbeat("g", "m", 0, topic_names=("a",), client_id="m")
    first, second = world.request(join), world.request(join)
    told = world.replies.pop(first).answer
    assert isinstance(told, ShareHeartbeatReply) and told.assignment == {}
    world.initialised("g", {A: (0,)})
    told = world.replies.pop(second).answer
    assert isinstance(told, ShareHeartbeatReply) and told.assignment == {A: (0,)}


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    world = World(ShareConfig(assignor_offload_enable=False))
    world.topics(topic(1, "a", 1))
    token = world.request(ShareHeartbeat("g", "m", 0, topic_names=("a",)))
    world.ask(ShareHeartbeat("g", "m", -1))
    world.sleep(600)
    assert token in world.replies


def test_topics_of_another_member_are_not_waited_for_when_this_one_has_its_own() -> None:
    """The wait is the group's: a topic without any share state holds each join up, join_wait_ms at most."""
    world = World(ShareConfig(assignor_offload_enable=False))
    world.topics(topic(1, "a", 1), topic(2, "b", 1))
    world.request(ShareHeartbeat("g", "m", 0, topic_names=("a", "b")))
    world.initialised("g", {A: (0,)})
    token = world.request(ShareHeartbeat("g", "n", 0, topic_names=("a",)))
    assert token not in world.replies
    world.sleep(500)
    assert token in world.replies


def test_a_member_reaches_no_epoch_0_in_a_group_that_came_without_a_target() -> None:
    """Symptom: its heartbeats named epoch 0, and without topics that is INVALID_REQUEST, which ends the client."""
    world = World(ShareConfig(join_wait_ms=0))
    world.topics(topic(1, "a", 2))
    world.ask(AdoptShare("g", 1, 0, "simple", (), {}, "moved"))
    client = Client(world, "g", "m", ("a",))
    assert client.heartbeat().member_epoch > 0
    assert client.heartbeat().code == Code.NONE
