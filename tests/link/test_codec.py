"""The messages between front and coordinator as bytes: each comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Struct

from sidecar.core.classic.events import (
    ClassicHeartbeat,
    DescribeClassic,
    DescribeClassicReply,
    DescribedClassicMember,
    JoinedMember,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    Left,
    SyncGroup,
    SyncReply,
)
from sidecar.core.consumer.events import (
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    DescribedMember,
    DescribeReply,
    HeartbeatReply,
)
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    Event,
    GroupsWithRecords,
    GroupsWithRecordsReply,
    Listed,
    ListGroups,
    ListReply,
)
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.share.events import (
    DescribedShareMember,
    DescribeShareGroup,
    Operation,
    ShareAdmin,
    ShareAdministered,
    ShareAdminReply,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from sidecar.core.streams.events import (
    DescribedStreamsMember,
    DescribeStreamsGroup,
    StreamsDescribeReply,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TopicsCreated,
)
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.status_texts import INITIAL_DELAY
from sidecar.core.streams.tasks import Tasks
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code
from sidecar.link.codec import SIMPLE, Frames, LinkCodec, LinkError
from sidecar.link.messages import (
    SETTINGS_EVENTS,
    AccessAnswer,
    AlterReply,
    AlterSettings,
    AskAccess,
    BrokerSilence,
    CheckGroupIsBrokers,
    CommitEnded,
    ConfiguredGroups,
    ConfiguredReply,
    DescribeSettings,
    Grant,
    GroupRules,
    Lease,
    Reply,
    Request,
    SettingChange,
    SettingsPassed,
    SettingsReply,
    SettingValue,
    TopicsPassed,
    Touch,
    View,
    Void,
)
from tests.harness.properties import given, st

TOPIC = b"\x01\xff" * 8
MEMBER = DescribedMember("m", "i", None, 3, "c", "/h", ("a",), None, ((TOPIC, "a", (0, 2)),), ())
REPARTITION = TopicInfo("app-r", 0, 1, (("retention.ms", "-1"),))
TOPO = Topology(1, (Subtopology("0", ("in",), ("app-r",), (REPARTITION,), (), (CopartitionGroup((0,), (0,)),)),))
STREAMS_MEMBER = DescribedStreamsMember(
    "m", 3, "i", None, "c", "/h", 1, "p", ("h", 1), (("a", "b"),), Tasks({"0": (1,)}), Tasks({"0": (1,)}, {"1": (0,)})
)
SHARE_MEMBER = DescribedShareMember("m", None, 3, "c", "/h", ("a",), ((TOPIC, "a", (0, 2)),))
EVENTS: list[Event] = [
    ConsumerHeartbeat("g", "m", 3, "i", "r", 5, ("a",), "a.*", "range", {TOPIC: (0, 2)}, "c", "/h", 0, "new"),
    ConsumerHeartbeat("g", "m", -1),
    CommitCheck("g", "m", 3, None, 9, False, (("a", TOPIC, 0),)),
    FetchCheck("g", None, -1),
    DescribeConsumerGroup("g"),
    JoinGroup("g", "m", "i", "consumer", (("range", b"\xff\0"),), 6, 7, "why", "c", "/h", 9, "uuid"),
    SyncGroup("g", "m", None, 3, "consumer", "range", (("m", b"\0\xff"),)),
    ClassicHeartbeat("g", "m", "i", 3),
    LeaveGroup("g", (Leaving("m", None, "why"), Leaving("", "i", None))),
    DescribeClassic("g", 6),
    ShareHeartbeat("g", "m", 3, "r", ("a",), "c", "/h"),
    ShareHeartbeat("g", "m", -1),
    DescribeShareGroup("g"),
    ShareAdmin("g", Operation.ALTER),
    ShareAdministered("g", Operation.DELETE_GROUP, "why"),
    StreamsHeartbeat("g", "m", 0, 1, "i", "r", 9, TOPO, (), (), (), "p", ("h", 1), (("a", "b"),), client_id="c"),
    StreamsHeartbeat(
        "g", "m", 3, task_offsets=(("0", 1, 9),), active_tasks=(("0", (1, 2)),), shutdown_application=True
    ),
    DescribeStreamsGroup("g"),
    TopicsCreated("g", "m", (("app-r", 36, None), ("app-c", 29, "no"))),
    DeletionCheck("g"),
    DeleteGroup("g"),
    ListGroups(),
    GroupsWithRecords("", ("g", "h")),
    AlterSettings("", (SettingChange(32, "g", {"a": "1", "b": None}),), False, "10.0.0.1"),
    DescribeSettings("", ("g",)),
    ConfiguredGroups(""),
    CheckGroupIsBrokers("", name="g"),
]
ANSWERS: list[Answer] = [
    Answer(Code.NON_EMPTY_GROUP, "no"),
    HeartbeatReply(member_id="m", member_epoch=3, heartbeat_interval_ms=5, assignment={TOPIC: (1,)}),
    CheckReply(Code.STALE_MEMBER_EPOCH),
    DescribeReply(state="Stable", epoch=3, assignment_epoch=3, assignor="range", members=(MEMBER,)),
    ShareHeartbeatReply(member_id="m", member_epoch=3, heartbeat_interval_ms=5, assignment={TOPIC: (1,)}),
    ShareDescribeReply(state="Stable", epoch=3, assignment_epoch=3, assignor="simple", members=(SHARE_MEMBER,)),
    ShareAdminReply(exists=True, placeholder=True),
    StreamsHeartbeatReply(
        member_id="m",
        member_epoch=3,
        status=(INITIAL_DELAY,),
        active_tasks={"0": (1, 2)},
        partitions_by_endpoint=((("h", 1), {"in": (0,)}, {}),),
        create=(NewTopic("app-r", 2, -1, (("retention.ms", "-1"),)),),
    ),
    StreamsDescribeReply(state="Stable", epoch=3, assignment_epoch=3, topology=TOPO, members=(STREAMS_MEMBER,)),
    JoinReply(
        member_id="m",
        generation=3,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        skip_assignment=True,
        members=(JoinedMember("m", "i", b"\xff"),),
    ),
    SyncReply(Code.NONE, None, "consumer", "range", b"\xff"),
    LeaveReply(members=(Left("m", None, Code.NONE), Left("", "i", Code.UNKNOWN_MEMBER_ID))),
    DescribeClassicReply(
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(DescribedClassicMember("m", "i", "c", "/h", b"\xff", b"\xfe"),),
    ),
    DeletionCheckReply(exists=True, members=2, subscribed=frozenset({"a"})),
    ListReply(groups=(Listed("g", "consumer", "Stable", "consumer"),)),
    GroupsWithRecordsReply(groups=frozenset({"g"})),
    AlterReply(refused={"32/g": (40, "no")}),
    SettingsReply(
        groups={"g": (SettingValue("a", None, "1", 5, "2"),)}, at_broker={"g": {"a": "3"}}, moves={"g": {"b": "4"}}
    ),
    ConfiguredReply(groups=("g",)),
]
MESSAGES: list[Struct] = [
    *(Request(i + 1, e) for i, e in enumerate(EVENTS)),
    *(Reply(i + 1, a) for i, a in enumerate(ANSWERS)),
    Reply(9, ANSWERS[1], Grant("g", "m", 4, 1 << 40)),
    Touch("g", "m"),
    AccessAnswer(1, frozenset({"a"})),
    AccessAnswer(1, None),
    CommitEnded(7, sure=False),
    SettingsPassed(),
    BrokerSilence(2_125),
    TopicsPassed(),
    Lease(1 << 40),
    View((1, -1), (2, 3), {1: ("h", 9092)}, False),
    GroupRules(("a.*",), (), {"g": True, "h": False}),
    GroupRules(),
    AskAccess(1 << 50, frozenset({"a"})),
    Void(("g", "h")),
]


def read(data: bytes) -> list[Any]:
    return list(Frames(LinkCodec()).feed(data))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: f"{type(m).__name__}-{MESSAGES.index(m)}")
def test_a_message_comes_back_as_it_was(message: Struct) -> None:
    (found,) = read(LinkCodec().encode(message))
    assert found == message
    assert type(found) is type(message)


def test_every_message_event_and_answer_is_tried() -> None:
    outer = [e for e in REGISTRY.events if not e.inner]
    assert {type(e) for e in EVENTS} == {
        *outer,
        DeletionCheck,
        DeleteGroup,
        ListGroups,
        GroupsWithRecords,
        *SETTINGS_EVENTS,
    }
    assert {type(a) for a in ANSWERS} >= {type(e).answer for e in EVENTS}
    assert {type(m) for m in MESSAGES} == {*SIMPLE, Request, Reply}


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_cut_out_of_any_pieces(sizes: list[int]) -> None:
    codec = LinkCodec()
    data = b"".join(map(codec.encode, MESSAGES))
    frames, found, at = Frames(codec), [], 0
    for i in range(len(data)):
        size = sizes[i % len(sizes)]
        found += list(frames.feed(data[at : at + size]))
        at += size
        if at >= len(data):
            break
    assert found == MESSAGES


@given(st.binary(min_size=1, max_size=60))
def test_what_is_no_message_is_refused(body: bytes) -> None:
    try:
        found = read(len(body).to_bytes(4, "big") + body)
    except LinkError:
        return
    assert len(found) == 1 and isinstance(found[0], Struct)


def test_text_that_is_no_utf_8_is_refused() -> None:
    """In whichever message, event or answer: it is no bug of this process."""
    codec, tried = LinkCodec(), 0
    for message in MESSAGES:
        body = codec.encode(message)[4:]
        for word in set(re.findall(rb"[a-z]{3,}", body[1:])):
            with suppress(LinkError):  # some bytes are data, and may be anything
                codec.decode(body.replace(word, b"\xff" * len(word)))
            tried += 1
    assert tried > 50
    with pytest.raises(LinkError):
        codec.decode(codec.encode(Touch("abc", "m"))[4:].replace(b"abc", b"\xff\xfe\xfd"))


@pytest.mark.parametrize("size", [0, (256 << 20) + 1])
def test_a_frame_of_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(LinkError):
        read(size.to_bytes(4, "big") + b"x")


def test_the_limit_of_a_frame_is_what_was_set_and_the_error_names_the_setting() -> None:
    data = LinkCodec().encode(Void(("g" * 1_000,)))
    (found,) = Frames(LinkCodec(), len(data) - 4).feed(data)
    assert found == Void(("g" * 1_000,))
    with pytest.raises(LinkError, match=r"limits.link_frame_bytes 1000: raise it in both processes"):
        list(Frames(LinkCodec(), 1_000).feed(data))
