"""The members and instance ids that are accepted; test_kafka_equal.py has the fields of requests and the epochs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.validation import check_size
from sidecar.core.streams.events import StreamsHeartbeat, StreamsHeartbeatReply
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.partitions import configure
from sidecar.core.streams.records import CurrentRecord, MemberRecord, MemberState
from sidecar.core.streams.status_texts import INTERVAL_DELAY, Status, StatusCode
from sidecar.core.streams.tasks import NOTHING_ASSIGNED, AssignedTasks
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.streams.validation import (
    check_epoch,
    check_released,
    check_request,
    check_tasks,
    existing,
    existing_member,
)
from sidecar.core.vocabulary.errors import Code, CoordinatorError

GROUP = StreamsGroup("g")
for name, instance in (("a", None), ("b", "i")):
    GROUP.replay(MemberRecord("g", name, instance, None, "", "", 1_000, 0, "p"))


def refusal(call: Callable[[], object]) -> tuple[Code, str]:
    with pytest.raises(CoordinatorError) as refused:
        call()
    return refused.value.code, refused.value.message


def beat(member_id: str, epoch: int = 1, **fields: object) -> StreamsHeartbeat:
    return StreamsHeartbeat("g", member_id, epoch, **fields)  # type: ignore[arg-type]


def test_a_group_that_is_not_there() -> None:
    assert existing(GROUP, "g") is GROUP
    assert refusal(lambda: existing(None, "h")) == (Code.GROUP_ID_NOT_FOUND, "Group h not found.")


def test_only_new_members_find_a_group_full() -> None:
    for member_id, instance_id in (("a", None), ("new", "i")):
        check_size(GROUP, member_id, instance_id, 2)
    check_size(GROUP, "new", None, 3)
    full = (Code.GROUP_MAX_SIZE_REACHED, "The streams group has reached its maximum capacity of 2 members.")
    assert refusal(lambda: check_size(GROUP, "new", None, 2)) == full
    assert refusal(lambda: check_size(GROUP, "new", "j", 2)) == full


def test_members_that_are_not_there() -> None:
    assert existing_member(GROUP, beat("a")).member_id == "a"
    assert existing_member(GROUP, beat("b", instance_id="i")).member_id == "b"
    unknown = Code.UNKNOWN_MEMBER_ID
    assert refusal(lambda: existing_member(GROUP, beat("x"))) == (unknown, "Member x is not a member of group g.")
    assert refusal(lambda: existing_member(GROUP, beat("b", instance_id="j"))) == (unknown, "Instance id j is unknown.")
    assert refusal(lambda: existing_member(GROUP, beat("a", instance_id="i"))) == (
        Code.FENCED_INSTANCE_ID,
        "Static member a with instance id i was fenced by member b.",
    )


def test_an_instance_id_that_another_holds() -> None:
    check_released(Member("b", "i", member_epoch=STATIC_LEAVE_EPOCH), "c", "i")
    assert refusal(lambda: check_released(Member("b", "i", member_epoch=4), "c", "i")) == (
        Code.UNRELEASED_INSTANCE_ID,
        "Static member c with instance id i cannot join the group because the instance id is owned by b member.",
    )


def test_the_previous_epoch_is_accepted_with_all_lists() -> None:
    had = AssignedTasks({"0": {0: 3}}, {"1": (1,)})
    group = StreamsGroup("g")
    group.replay(MemberRecord("g", "a", None, None, "", "", 1_000, 0, "p"))
    group.replay(CurrentRecord("g", "a", 5, 3, MemberState.STABLE, had, NOTHING_ASSIGNED))
    member = group.members["a"]
    lists = {"active_tasks": (("0", (0,)),), "standby_tasks": (), "warmup_tasks": ()}
    check_epoch(member, beat("a", 3, **lists))
    others = [{**lists, "active_tasks": (("0", (0,)), task)} for task in (("0", (1,)), ("2", ()))]
    for hb in (beat("a", 3), beat("a", 4, **lists), *(beat("a", 3, **other) for other in others)):
        code, text = refusal(lambda hb=hb: check_epoch(member, hb))  # type: ignore[misc]
        assert code == Code.FENCED_MEMBER_EPOCH and text == (
            f"The streams group member has a smaller member epoch ({hb.member_epoch}) than the one known by the group "
            "coordinator (5). The member must abandon all its partitions and rejoin."
        )


def test_tasks_that_do_not_exist() -> None:
    topology = configure(Topology(0, (Subtopology("0", ("in",)),)), {"in": 2}.get)
    check_tasks(topology, beat("a", active_tasks=(("0", (0, 1)),), standby_tasks=(), warmup_tasks=None))
    for tasks, text in (
        ((("1", ()),), "Subtopology 1 does not exist in the topology."),
        ((("0", (0, 2)),), "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
        ((("0", (-1,)),), "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
    ):
        code, said = refusal(lambda tasks=tasks: check_tasks(topology, beat("a", warmup_tasks=tasks)))  # type: ignore[misc]
        assert (code, said) == (Code.INVALID_REQUEST, text)


def test_blank_ids_are_those_of_java() -> None:
    """Java's trim knows no other spaces than those up to U+0020."""
    check_request(beat("\u2003"))
    assert refusal(lambda: check_request(beat("\x00 "))) == (Code.INVALID_REQUEST, "MemberId can't be empty.")


def test_a_heartbeat_and_its_reply_survive_the_link() -> None:
    """Fronts and coordinators send them to each other."""
    topology = Topology(0, (Subtopology("0", ("in",), (), (TopicInfo("r"),), (), (CopartitionGroup((0,), (0,)),)),))
    hb = beat("a", 0, topology=topology, active_tasks=(("0", (0, 1)),), endpoint=("h", 1), client_tags=(("k", "v"),))
    reply = StreamsHeartbeatReply(
        status=(INTERVAL_DELAY, Status(StatusCode.STALE_TOPOLOGY, "x")),
        active_tasks={"0": (0, 1)},
        partitions_by_endpoint=((("h", 1), {"in": (0,)}, {}),),
        create=(NewTopic("r", 1, -1, (("k", "v"),)),),
    )
    packed = msgspec.msgpack.encode([hb, reply])
    assert msgspec.msgpack.decode(packed, type=tuple[StreamsHeartbeat, StreamsHeartbeatReply]) == (hb, reply)
    assert hash(topology) == hash(hb.topology)
