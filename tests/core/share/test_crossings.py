"""A share group meets the requests of other kinds, and their groups meet a ShareGroupHeartbeat: the codes of the table
in the behaviour of share groups, section 1."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.core.classic.events import (
    ClassicHeartbeat,
    DescribeClassic,
    JoinGroup,
    LeaveGroup,
    LeaveReply,
    Leaving,
    SyncGroup,
)
from sidecar.core.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.share.adoption import AdoptShare
from sidecar.core.share.events import DescribeShareGroup, Operation, ShareAdmin, ShareAdministered, ShareHeartbeat
from sidecar.core.vocabulary.errors import Code
from tests.core.share.world import Client, World, topic

PROTOCOLS = (("range", b""),)
NOT_SHARE, NOT_CONSUMER = "Group g is not a share group.", "Group g is not a consumer group."


def classic_join() -> JoinGroup:
    return JoinGroup("g", "", None, "consumer", PROTOCOLS, 30_000, 30_000, None, "c", "/h", 9, "uuid")


def consumer_join(epoch: int = 0) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", "c1", epoch, rebalance_timeout_ms=30_000, topic_names=("a",), owned={})


def share_join(epoch: int = 0) -> ShareHeartbeat:
    return ShareHeartbeat("g", "s1", epoch, topic_names=("a",))


def share_group(*, empty: bool) -> World:
    """A share group with a member, or without any more."""
    world = World()
    world.topics(topic(1, "a", 1))
    client = Client(world, "g", "m", ("a",))
    client.heartbeat()
    if empty:
        client.leave()
    return world


def answer_to(world: World, event: Event) -> Answer:
    """The answer to a program that takes the group for one of its own kind. Nothing is written for it."""
    fx = world.shard.handle(event, 1, world.now)
    assert not fx.records and not fx.background
    return fx.replies[0].answer


@pytest.mark.parametrize("empty", [False, True], ids=["live", "empty"])
@pytest.mark.parametrize(
    ("event", "code", "message"),
    [
        (classic_join(), Code.INCONSISTENT_GROUP_PROTOCOL, None),
        (consumer_join(), Code.GROUP_ID_NOT_FOUND, NOT_CONSUMER),
        (consumer_join(4), Code.GROUP_ID_NOT_FOUND, NOT_CONSUMER),
        (consumer_join(-1), Code.GROUP_ID_NOT_FOUND, NOT_CONSUMER),
        (SyncGroup("g", "c", None, 1, None, None, ()), Code.UNKNOWN_MEMBER_ID, ...),
        (ClassicHeartbeat("g", "c", None, 1), Code.UNKNOWN_MEMBER_ID, ...),
        (DescribeClassic("g", 6), Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group."),
        (DescribeConsumerGroup("g"), Code.GROUP_ID_NOT_FOUND, NOT_CONSUMER),
        (DescribeShareGroup("g"), Code.NONE, None),
        (CommitCheck("g", "", -1, None, 9, False, ()), Code.GROUP_ID_NOT_FOUND, None),
        (CommitCheck("g", "m", 2, None, 9, False, ()), Code.GROUP_ID_NOT_FOUND, None),
        (FetchCheck("g", None, -1), Code.NONE, None),
        (FetchCheck("g", "m", 7), Code.NONE, None),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Event) else None,
)
def test_a_share_group_meets_others(event: Event, code: Code, message: Any, empty: bool) -> None:
    world = share_group(empty=empty)
    reply = answer_to(world, event)
    assert reply.code == code and message in (reply.message, ...)
    assert world.group("g").kind == "share"


def test_members_that_leave_are_unknown() -> None:
    reply = answer_to(share_group(empty=False), LeaveGroup("g", (Leaving("m", None, None),)))
    assert isinstance(reply, LeaveReply)
    assert (reply.code, [m.code for m in reply.members]) == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])


@pytest.mark.parametrize("join", [classic_join(), consumer_join()], ids=["classic", "consumer"])
def test_other_groups_meet_share_requests(join: Event) -> None:
    world = World()
    world.topics(topic(1, "a", 1))
    world.request(join)
    events: list[Event] = [share_join(), share_join(4), share_join(-1), DescribeShareGroup("g")]
    events += [ShareAdmin("g", operation) for operation in Operation]
    events += [ShareAdministered("g", operation, "late") for operation in Operation]
    for event in events:
        reply = answer_to(world, event)
        assert (reply.code, reply.message) == (Code.GROUP_ID_NOT_FOUND, NOT_SHARE), event
    assert answer_to(world, AdoptShare("g", 3, 3, "simple", (), {}, "moved")).code == Code.NON_EMPTY_GROUP


def test_a_share_group_has_no_placeholder_of_the_classic_protocol() -> None:
    world = share_group(empty=False)
    assert not world.shard.has_committers("g")
    world = World()
    world.topics(topic(1, "a", 1))
    world.request(consumer_join())
    assert world.shard.has_committers("g")
