"""A streams group meets the requests of other kinds, and their groups meet a StreamsGroupHeartbeat: the codes of the
table in the behaviour of streams groups, section 1."""

from __future__ import annotations

from dataclasses import replace
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
from sidecar.core.runtime.effects import Count
from sidecar.core.runtime.events import DeleteGroup, DeletionCheck, DeletionCheckReply, Event
from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.streams.adoption import AdoptStreams
from sidecar.core.streams.events import DescribeStreamsGroup, StreamsHeartbeat, TopicsCreated
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.errors import Code
from sidecar.link.codec import Frames, LinkCodec
from sidecar.link.messages import Request
from tests.core.streams.world import REGISTRY, TOPOLOGY, Client, World

PROTOCOLS = (("range", b""),)
NOT_STREAMS, NOT_CONSUMER = "Group g is not a streams group.", "Group g is not a consumer group."


def classic_join(member_id: str = "", timeout_ms: int = 30_000, version: int = 3) -> JoinGroup:
    return JoinGroup("g", member_id, None, "consumer", PROTOCOLS, timeout_ms, 30_000, None, "c", "/h", version, "uuid")


def consumer_join(epoch: int = 0) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", "c1", epoch, rebalance_timeout_ms=30_000, topic_names=("in",), owned={})


def streams_group(*, empty: bool) -> World:
    """A streams group with a member, or without any more."""
    world = World()
    world.grow({"in": 1, "app-r": 1, "app-c": 1})
    client = Client(world, "m")
    client.heartbeat()
    if empty:
        client.leave()
    return world


@pytest.mark.parametrize("empty", [False, True], ids=["live", "empty"])
@pytest.mark.parametrize(
    ("event", "codes", "message"),
    [
        (consumer_join(), (Code.GROUP_ID_NOT_FOUND,), NOT_CONSUMER),
        (consumer_join(4), (Code.GROUP_ID_NOT_FOUND,), NOT_CONSUMER),
        (consumer_join(-1), (Code.GROUP_ID_NOT_FOUND,), NOT_CONSUMER),
        (SyncGroup("g", "c", None, 1, None, None, ()), (Code.UNKNOWN_MEMBER_ID,), ...),
        (ClassicHeartbeat("g", "c", None, 1), (Code.UNKNOWN_MEMBER_ID,), ...),
        (DescribeClassic("g", 6), (Code.GROUP_ID_NOT_FOUND,), "Group g is not a classic group."),
        (DescribeConsumerGroup("g"), (Code.GROUP_ID_NOT_FOUND,), NOT_CONSUMER),
        (DescribeStreamsGroup("g"), (Code.NONE,), None),
        (CommitCheck("g", "", -1, None, 9, False, ()), (Code.UNKNOWN_MEMBER_ID, Code.NONE), None),
        (FetchCheck("g", None, -1), (Code.NONE,), None),
        (FetchCheck("g", "x", 7), (Code.UNKNOWN_MEMBER_ID,), None),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Event) else None,
)
def test_a_streams_group_meets_others(event: Event, codes: tuple[Code, ...], message: Any, empty: bool) -> None:
    world = streams_group(empty=empty)
    before = list(world.log)
    reply = world.ask(event)
    assert reply.code == codes[-1 if empty else 0] and message in (reply.message, ...)
    assert world.log == before and world.group("g").kind == "streams"


def test_members_that_leave_are_unknown() -> None:
    reply = streams_group(empty=False).ask(LeaveGroup("g", (Leaving("m", None, None),)))
    assert isinstance(reply, LeaveReply)
    assert (reply.code, [m.code for m in reply.members]) == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])


def test_a_live_streams_group_refuses_classic_members() -> None:
    world = streams_group(empty=False)
    before = list(world.log)
    assert world.ask(classic_join()).code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.ask(DeleteGroup("g")).code == Code.NON_EMPTY_GROUP
    assert world.log == before


def test_an_empty_streams_group_becomes_classic() -> None:
    world = streams_group(empty=True)
    for refused in (classic_join(timeout_ms=1), classic_join("unknown")):
        assert world.ask(refused).code and world.group("g").kind == "streams"
    world.request(classic_join())
    assert world.shard.groups["g"].kind == "classic" and world.rebuilt().groups["g"].kind == "classic"
    world.sleep(60_000, 1_000)


def test_an_empty_classic_group_becomes_a_streams_group() -> None:
    world = World()
    world.grow({"in": 1, "app-r": 1, "app-c": 1})
    token = world.request(classic_join())
    world.sleep(4_000)
    member_id = world.replies.pop(token).answer.member_id  # type: ignore[attr-defined]
    client = Client(world, "m")
    before = list(world.log)
    live_one = client.heartbeat()
    assert (live_one.code, live_one.message) == (Code.GROUP_ID_NOT_FOUND, NOT_STREAMS) and world.log == before
    world.ask(LeaveGroup("g", (Leaving(member_id, None, None),)))
    negative = Client(world, "m", topology=Topology(-1, TOPOLOGY.subtopologies))
    assert negative.heartbeat().code == Code.INVALID_REQUEST and world.shard.groups["g"].kind == "classic"
    client = Client(world, "m")
    assert client.heartbeat().member_epoch == 2 and client.active() == {("0", 0), ("1", 0)}
    assert world.rebuilt().groups["g"].kind == "streams"


def emptied(kind: str) -> World:
    """A world with an empty group of this kind."""
    if kind == "streams":
        return streams_group(empty=True)
    world = World()
    world.grow({"in": 1, "app-r": 1, "app-c": 1})
    world.request(classic_join() if kind == "classic" else consumer_join())
    world.sleep(60_000, 1_000)  # longer than the session
    return world


JOINS: dict[str, Event] = {
    "classic": classic_join(),
    "consumer": consumer_join(),
    "streams": Client(World(), "m").request(),
}


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (MemberLimits(group_bytes=1), Code.GROUP_MAX_SIZE_REACHED),
        (MemberLimits(members_bytes=1), Code.COORDINATOR_LOAD_IN_PROGRESS),
    ],
    ids=["of the group", "of all groups"],
)
@pytest.mark.parametrize(
    ("kind", "joins"),
    [("consumer", "classic"), ("streams", "classic"), ("classic", "consumer"), ("classic", "streams")],
)
def test_a_join_without_room_leaves_the_empty_group(kind: str, joins: str, limits: MemberLimits, code: Code) -> None:
    """Symptom: a JoinGroup that was refused had removed the empty streams or consumer group, with its epoch."""
    world = emptied(kind)
    group, before, turn = world.shard.groups["g"], list(world.log), world.shard._turn
    assert group.kind == kind and not group.member_count()
    turn.ports = replace(turn.ports, limits=limits)
    assert world.ask(JOINS[joins]).code == code
    assert world.log == before and world.shard.groups["g"] is group
    assert not any(isinstance(note, Count) and note.metric == "migrations" for note in world.notes)


@pytest.mark.parametrize("join", [classic_join(), consumer_join()], ids=["classic", "consumer"])
def test_other_groups_meet_streams_requests(join: Event) -> None:
    world = World()
    world.grow({"in": 1, "app-r": 1, "app-c": 1})
    world.request(join)
    before = list(world.log)
    client = Client(world, "s1")
    leaving = StreamsHeartbeat("g", "s1", -1)
    for event in (client.request(), StreamsHeartbeat("g", "s1", 4), leaving, DescribeStreamsGroup("g")):
        reply = world.ask(event)
        assert (reply.code, reply.message) == (Code.GROUP_ID_NOT_FOUND, NOT_STREAMS), event
    assert world.ask(TopicsCreated("g", "m", (("app-r", 0, None),))).code == Code.NONE
    assert world.ask(AdoptStreams("g", 3, 3, "sticky", TOPOLOGY, (), 1, "moved")).code == Code.NON_EMPTY_GROUP
    assert world.log == before


EVENTS = [e for e in REGISTRY.events if not e.inner and e.__module__.startswith("sidecar.core.streams")]


@pytest.mark.parametrize(
    "event",
    [
        Client(World(), "m", endpoint=("h", 1), client_tags=(("a", "b"),)).request(),
        DescribeStreamsGroup("g"),
        TopicsCreated("g", "m", (("a", 3, "words"), ("b", 0, None))),
    ],
    ids=lambda e: type(e).__name__,
)
def test_requests_of_streams_groups_go_over_a_link(event: Event) -> None:
    codec = LinkCodec(REGISTRY)
    assert [*Frames(codec).feed(codec.encode(Request(7, event)))] == [Request(7, event)]
    assert type(event) in EVENTS and len(EVENTS) == 3


def test_a_streams_group_has_a_placeholder_of_the_classic_protocol() -> None:
    assert streams_group(empty=False).shard.has_committers("g") and not streams_group(empty=True).shard.has_committers(
        "g"
    )


def test_offsets_of_its_topics_are_kept_while_it_has_members() -> None:
    said = streams_group(empty=False).ask(DeletionCheck("g"))
    assert isinstance(said, DeletionCheckReply) and said.subscribed == {"in", "app-r"} and said.members == 1
