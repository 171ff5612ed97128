"""StreamsGroupHeartbeat, StreamsGroupDescribe and what else concerns streams groups: what is asked in which order, and
whole conversations with the coordinator's core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.api.call import Client as Connection
from sidecar.api.call import Learnt, Start
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    Event,
    GroupsWithRecords,
    GroupsWithRecordsReply,
)
from sidecar.core.streams import status_texts
from sidecar.core.streams.events import (
    DescribeStreamsGroup,
    StreamsDescribeReply,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
    TopicsCreated,
)
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.streams.tasks import TaskIds
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import streams_group_describe as sd
from sidecar.wire.generated import streams_group_heartbeat as st
from sidecar.wire.generated import streams_group_topology_description_update as td
from tests.api.play import CORRELATION, NO_AUTHORIZER, WHO, Message, Play
from tests.core.streams.world import TOPOLOGY, Client, World, quick

KNOWN = GroupsWithRecords(candidates=("g",))
NEW: dict[int, tuple[int, int]] = {
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.STREAMS_GROUP_HEARTBEAT: (0, 1),
    Api.STREAMS_GROUP_DESCRIBE: (0, 1),
}
V0: dict[int, tuple[int, int]] = {**NEW, Api.STREAMS_GROUP_HEARTBEAT: (0, 0), Api.STREAMS_GROUP_DESCRIBE: (0, 0)}
OLD: dict[int, tuple[int, int]] = {Api.DESCRIBE_GROUPS: (0, 5)}
OPEN = Learnt(open_until_ms=1 << 60)
"""The listener wants no client to authenticate."""


def wire_topology(t: Topology | None) -> st.Topology | None:
    return None if t is None else st.Topology(t.epoch, [wire_subtopology(s) for s in t.subtopologies])


def wire_subtopology(s: Subtopology) -> st.Subtopology:
    groups = [
        st.CopartitionGroup(list(g.source_topics), [], list(g.repartition_source_topics)) for g in s.copartition_groups
    ]
    return st.Subtopology(
        s.subtopology_id,
        list(s.source_topics),
        list(s.source_topic_regex),
        [wire_topic(t) for t in s.changelog_topics],
        list(s.repartition_sink_topics),
        [wire_topic(t) for t in s.repartition_source_topics],
        groups,
    )


def wire_topic(t: TopicInfo) -> st.TopicInfo:
    return st.TopicInfo(t.name, t.partitions, t.replication_factor, [st.KeyValue(k, v) for k, v in t.configs])


def wire_tasks(tasks: tuple[TaskIds, ...] | None) -> list[st.TaskIds] | None:
    return None if tasks is None else [st.TaskIds(s, list(ps)) for s, ps in tasks]


def wire_offsets(offsets: tuple[TaskOffset, ...] | None) -> list[st.TaskOffset] | None:
    return None if offsets is None else [st.TaskOffset(*o) for o in offsets]


def wire(hb: StreamsHeartbeat) -> st.StreamsGroupHeartbeatRequest:
    """The request that becomes this event."""
    return st.StreamsGroupHeartbeatRequest(
        hb.group_id,
        hb.member_id,
        hb.member_epoch,
        hb.endpoint_epoch,
        hb.instance_id,
        hb.rack_id,
        hb.rebalance_timeout_ms,
        wire_topology(hb.topology),
        wire_tasks(hb.active_tasks),
        wire_tasks(hb.standby_tasks),
        wire_tasks(hb.warmup_tasks),
        hb.process_id,
        None if hb.endpoint is None else st.Endpoint(*hb.endpoint),
        None if hb.client_tags is None else [st.KeyValue(k, v) for k, v in hb.client_tags],
        wire_offsets(hb.task_offsets),
        wire_offsets(hb.task_end_offsets),
        hb.shutdown_application,
    )


def streams(api: Api, request: Message, version: int = 1, **given: Any) -> Play:
    return Play(api, request, version, streams=True, **given)


def joins(topology: Topology = TOPOLOGY, **given: Any) -> StreamsHeartbeat:
    return StreamsHeartbeat(
        "g",
        "m",
        0,
        rebalance_timeout_ms=9,
        topology=topology,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="p",
        client_id="app",
        client_host="/10.0.0.9",
        **given,
    )


TOPICS = ("app-c", "app-r", "in")
"""The topics of TOPOLOGY."""
JOINED = joins()
BEAT = StreamsHeartbeat("g", "m", 3, client_id="app", client_host="/10.0.0.9")


def beats(event: StreamsHeartbeat = JOINED, version: int = 1, **given: Any) -> Play:
    return streams(Api.STREAMS_GROUP_HEARTBEAT, wire(event), version, **given)


def refused(code: Code, message: str | None = None) -> st.StreamsGroupHeartbeatResponse:
    return st.StreamsGroupHeartbeatResponse(error_code=code, error_message=message)


# ---- heartbeats, one by one -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 1])
def test_everything_that_a_member_says_gets_to_the_coordinator(version: int) -> None:
    full = joins(
        endpoint_epoch=4,
        instance_id="i",
        rack_id="r",
        endpoint=("h", 1),
        client_tags=(("a", "b"),),
        task_offsets=(("0", 1, 9),),
        task_end_offsets=(("0", 1, 10),),
        shutdown_application=True,
        version=version,
    )
    play = beats(full, version).may_read("g").may_describe_topics(*TOPICS).coordinates(full)
    reply = StreamsHeartbeatReply(
        member_id="m",
        member_epoch=2,
        heartbeat_interval_ms=5,
        acceptable_recovery_lag=7,
        task_offset_interval_ms=8,
        active_tasks={"1": (0, 1), "0": (2,)},
        standby_tasks={},
        warmup_tasks={"1": (2,)},
        endpoint_epoch=3,
        partitions_by_endpoint=((("h", 1), {"in": (0, 1)}, {"app-r": (2,)}),),
    )
    endpoint = st.ResponseEndpoint("h", 1)
    play.coordinator(reply).answers(
        st.StreamsGroupHeartbeatResponse(
            member_id="m",
            member_epoch=2,
            heartbeat_interval_ms=5,
            task_offset_interval_ms=8,
            active_tasks=[st.ResponseTaskIds("0", [2]), st.ResponseTaskIds("1", [0, 1])],
            standby_tasks=[],
            warmup_tasks=[st.ResponseTaskIds("1", [2])],
            endpoint_information_epoch=3,
            partitions_by_user_endpoint=[
                st.EndpointToPartitions(endpoint, [st.TopicPartition("in", [0, 1])], [st.TopicPartition("app-r", [2])])
            ],
            acceptable_recovery_lag=7 if version else -1,
        )
    )


def test_a_group_right_comes_first_then_names_then_topics_then_the_coordinator() -> None:
    internal = joins(Topology(1, (Subtopology("0", ("__consumer_offsets", "*")),)))
    beats(internal).may_not_read("g").answers(refused(Code.GROUP_AUTHORIZATION_FAILED))
    told = "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited."
    beats(internal).may_read("g").answers(refused(Code.STREAMS_INVALID_TOPOLOGY, told))
    odd = joins(Topology(1, (Subtopology("0", ("in",), ("*",)),)))
    told = "Topic names * are not valid topic names."
    beats(odd).may_read("g").answers(refused(Code.STREAMS_INVALID_TOPOLOGY, told))
    play = beats().may_read("g").may_describe_topics(*TOPICS, hidden=["app-r"])
    play.answers(refused(Code.TOPIC_AUTHORIZATION_FAILED))
    play = beats().may_read("g").may_describe_topics(*TOPICS).coordinates(JOINED)
    play.coordinator(StreamsHeartbeatReply(Code.INVALID_REQUEST, "no")).answers(refused(Code.INVALID_REQUEST, "no"))


def test_a_steady_heartbeat_tells_no_tasks_and_asks_about_no_topic() -> None:
    play = beats(BEAT).may_read("g").coordinates(BEAT)
    play.coordinator(StreamsHeartbeatReply(member_id="m", member_epoch=3, heartbeat_interval_ms=5))
    res = st.StreamsGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5)
    res.acceptable_recovery_lag = 0
    play.answers(res)


def test_a_description_of_the_topology_is_never_taken() -> None:
    request = td.StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1)
    api, res = Api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, td.StreamsGroupTopologyDescriptionUpdateResponse
    text = "The broker has no streams group topology description plugin configured."
    streams(api, request, 0).may_read("g").answers(res(error_code=Code.UNSUPPORTED_VERSION, error_message=text))
    streams(api, request, 0).may_not_read("g").answers(res(error_code=Code.GROUP_AUTHORIZATION_FAILED))
    streams(api, request, 0, managed=()).forwards()
    Play(api, request, 0).forwards()


# ---- groups of the broker -------------------------------------------------------------------------------------------
AWAY = replace(JOINED, group_id="theirs")
GONE = replace(BEAT, group_id="theirs")


def test_a_group_of_the_broker_is_left_to_it_and_no_client_dies_of_its_move() -> None:
    beats(AWAY, client=Connection("10.0.0.9", broker_versions=NEW)).whose("theirs").forwards()
    play = beats(GONE, client=Connection("10.0.0.9", broker_versions=NEW)).asks()
    play = play.broker(refused(Code.GROUP_ID_NOT_FOUND, "Streams group theirs not found."))
    assert int.from_bytes(play.gives()[4:6], "big") == Code.UNKNOWN_MEMBER_ID


def test_a_broker_of_fewer_versions_is_asked_in_its_own() -> None:
    connection = Connection("10.0.0.9", broker_versions=V0)
    play = beats(AWAY, client=connection).whose("theirs").asks(wire(AWAY), 0)
    told = st.StreamsGroupHeartbeatResponse(member_id="m", member_epoch=1, acceptable_recovery_lag_legacy=10)
    play.broker(told).answers(
        st.StreamsGroupHeartbeatResponse(member_id="m", member_epoch=1, acceptable_recovery_lag=10)
    )
    beats(GONE, 0, client=connection).asks().broker(told).answers(told)


def test_a_broker_of_fewer_versions_describes_its_groups_in_its_own() -> None:
    connection = Connection("10.0.0.9", broker_versions=V0)
    request = sd.StreamsGroupDescribeRequest(["theirs"], False, True)
    play = streams(Api.STREAMS_GROUP_DESCRIBE, request, client=connection)
    theirs = sd.StreamsGroupDescribeResponse(groups=[sd.DescribedGroup(0, None, "theirs", "Empty")])
    play.asks(sd.StreamsGroupDescribeRequest(["theirs"]), 0).broker(theirs).answers(theirs)


def test_a_broker_without_streams_groups_has_none() -> None:
    connection = Connection("10.0.0.9", broker_versions=OLD)
    beats(AWAY, client=connection).whose("theirs").answers(refused(Code.UNSUPPORTED_VERSION))
    body = beats(GONE, client=connection).gives()
    assert int.from_bytes(body[4:6], "big") == Code.UNKNOWN_MEMBER_ID
    text = "Group theirs is not a streams group."
    request = sd.StreamsGroupDescribeRequest(["theirs"])
    streams(Api.STREAMS_GROUP_DESCRIBE, request, client=connection).answers(
        sd.StreamsGroupDescribeResponse(groups=[sd.DescribedGroup(69, text, "theirs")])
    )


def test_where_streams_groups_are_the_brokers_nothing_is_coordinated() -> None:
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, wire(JOINED), 1).coordinates(KNOWN).coordinator(GroupsWithRecordsReply())
    play.forwards()
    Play(Api.STREAMS_GROUP_DESCRIBE, sd.StreamsGroupDescribeRequest(["g"]), 1).forwards()


PLACEHOLDER = dg.DescribedGroupMember("p", "kafka-group-sidecar", "sidecar-1", "/h")
THEIRS = dg.DescribedGroupMember("m", None, "app", "/h")


@pytest.mark.parametrize(
    ("found", "members", "code"),
    [
        (dg.DescribedGroup(0, None, "g", "Empty"), None, Code.NONE),
        (dg.DescribedGroup(0, None, "g", "Stable", members=[PLACEHOLDER]), None, Code.NONE),
        (dg.DescribedGroup(0, None, "g", "Stable", members=[PLACEHOLDER, THEIRS]), None, Code.GROUP_ID_NOT_FOUND),
        (dg.DescribedGroup(69, "Group g not found.", "g", "Dead"), None, Code.NONE),
        (dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"), None, Code.GROUP_ID_NOT_FOUND),
        (dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"), 0, Code.NONE),
        (dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"), 1, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"), 2, Code.NONE),
    ],
)
def test_a_name_that_another_group_has_at_the_broker(found: dg.DescribedGroup, members: int | None, code: Code) -> None:
    """`members`: of a streams group there; None: there is none. One with two is taken in before anybody joins."""
    connection = Connection("10.0.0.9", broker_versions=NEW)
    play = beats(client=connection).may_read("g").may_describe_topics(*TOPICS)
    play.coordinates(KNOWN).coordinator(GroupsWithRecordsReply())
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(dg.DescribeGroupsResponse(groups=[found]))
    if found.error_message is not None and "classic" in found.error_message:
        other = sd.DescribedGroup(69, "Group g is not a streams group.", "g")
        if members is not None:
            other = sd.DescribedGroup(0, None, "g", members=[sd.Member() for _ in range(members)])
        play.asks(sd.StreamsGroupDescribeRequest(["g"]), 0).broker(sd.StreamsGroupDescribeResponse(groups=[other]))
    if members:
        here = DeletionCheckReply(exists=True, kind="streams", members=2) if members == 2 else DeletionCheckReply()
        play.coordinates(DeletionCheck("g")).coordinator(here)
    if code == Code.NONE:
        play.coordinates(JOINED).coordinator(StreamsHeartbeatReply()).gives()
    elif code == Code.GROUP_ID_NOT_FOUND:
        play.answers(refused(code, "Group g is not a streams group."))
    else:
        assert int.from_bytes(play.gives()[4:6], "big") == code


def test_a_broker_that_says_nothing_of_the_name_is_a_fault_of_its_answer() -> None:
    play = beats(client=Connection("10.0.0.9", broker_versions=NEW)).may_read("g").may_describe_topics(*TOPICS)
    play.coordinates(KNOWN).coordinator(GroupsWithRecordsReply()).asks(dg.DescribeGroupsRequest(["g"]), 6)
    play.breaks(dg.DescribeGroupsResponse(), "lacks")


# ---- internal topics ------------------------------------------------------------------------------------------------
def created(started: Start, *rows: tuple[str, int, str | None]) -> Event:
    """The event that the broker's answer becomes."""
    res = ct.CreateTopicsResponse(
        topics=[ct.CreatableTopicResult(n, error_code=c, error_message=m) for n, c, m in rows]
    )
    return started.then(response_frame(CORRELATION, False, bytes(res.encode(4))))


def test_internal_topics_are_asked_for_before_the_answer_and_nobody_waits() -> None:
    new = (NewTopic("app-r", 3, -1), NewTopic("app-c", 3, 2, (("cleanup.policy", "compact"),)))
    play = beats(BEAT).may_read("g").coordinates(BEAT).coordinator(StreamsHeartbeatReply(create=new))
    wanted = [
        ct.CreatableTopic("app-r", 3, -1),
        ct.CreatableTopic("app-c", 3, 2, [], [ct.CreatableTopicConfig("cleanup.policy", "compact")]),
    ]
    started = play.starts(ct.CreateTopicsRequest(wanted, 5_000), 4)
    play.gives()
    told = created(started, ("app-c", 29, "Authorization failed."), ("app-r", 36, None))
    assert told == TopicsCreated("g", "m", (("app-r", 36, None), ("app-c", 29, "Authorization failed.")))
    lost = TopicsCreated("g", "m", (("app-r", 7, None), ("app-c", 7, None)))
    assert started.then(None) == created(started) == lost, "nobody knows what became of them"


HEARTBEAT_STATUSES = {
    "unequal counts": status_texts.incorrectly_partitioned(", ".join("x" * 249 for _ in range(140))),
    "shutdown": status_texts.shutdown_application("\u20ac" * 10_900),
    "errors": status_texts.with_errors(status_texts.missing_internal_topics("ab"), dict.fromkeys("ab", "v" * 20_000)),
    "denial": status_texts.with_denial(status_texts.missing_internal_topics("a"), ["y" * 249] * 140, 0),
    "tags": status_texts.missing_client_tags(["t" * 1_000] * 40),
}


@pytest.mark.parametrize("name", HEARTBEAT_STATUSES)
def test_a_status_of_any_length_fits_into_the_answer(name: str) -> None:
    """Symptom: each member of the group lost its connection with each heartbeat, and the log blamed its request."""
    status = HEARTBEAT_STATUSES[name]
    play = beats(BEAT).may_read("g").coordinates(BEAT).coordinator(StreamsHeartbeatReply(status=(status,)))
    (given,) = statuses(st.StreamsGroupHeartbeatResponse.decode(1, play.gives()))
    assert given.status_code == status.code and status.detail.startswith(given.status_detail.removesuffix("..."))
    assert len(given.status_detail) >= 8_000


# ---- conversations with the core ------------------------------------------------------------------------------------
@dataclass
class App:
    """An application behind a front, and the coordinator's core."""

    world: World
    started: list[Start] = field(default_factory=list)
    """CreateTopics requests that have no answer yet."""

    @classmethod
    def of(cls, topics: Mapping[str, int]) -> App:
        app = cls(World(quick()))
        app.world.grow(topics)
        return app

    def play(self, api: Api, request: Message, version: int, client_id: str = "app") -> Play:
        connection = Connection("h")
        return streams(api, request, version, view=NO_AUTHORIZER, learnt=OPEN, client=connection, client_id=client_id)

    def beat(self, member: Client, **changes: Any) -> st.StreamsGroupHeartbeatResponse:
        """The next heartbeat of this member over the wire, and its answer."""
        event = replace(member.request(), **changes)
        member.full = False
        play = self.play(Api.STREAMS_GROUP_HEARTBEAT, wire(event), event.version, member.member_id)
        reply = self.world.ask(event)
        assert isinstance(reply, StreamsHeartbeatReply)
        play.coordinates(event).coordinator(reply)
        if reply.create:
            wanted = ct.CreateTopicsRequest([_wanted(t) for t in reply.create], 5_000)
            self.started.append(play.starts(wanted, 4))
        member.apply_reply(reply)
        return st.StreamsGroupHeartbeatResponse.decode(event.version, play.gives())

    def create(self, *rows: tuple[str, int, str | None]) -> None:
        """The broker answers the oldest CreateTopics."""
        assert self.world.ask(created(self.started.pop(0), *rows)) == Answer()

    def describe(self, version: int = 1) -> sd.DescribedGroup:
        request = sd.StreamsGroupDescribeRequest(["g"])
        play = self.play(Api.STREAMS_GROUP_DESCRIBE, request, version).may_describe("g").core(self.world.ask)
        (group,) = sd.StreamsGroupDescribeResponse.decode(version, play.gives()).groups
        return group


def _wanted(t: NewTopic) -> ct.CreatableTopic:
    configs = [ct.CreatableTopicConfig(k, v) for k, v in t.configs]
    return ct.CreatableTopic(t.name, t.partitions, t.replication_factor, [], configs)


def statuses(res: st.StreamsGroupHeartbeatResponse) -> list[st.Status]:
    return res.status or []


def codes(res: st.StreamsGroupHeartbeatResponse) -> list[int]:
    return [s.status_code for s in statuses(res)]


def active(res: st.StreamsGroupHeartbeatResponse) -> Mapping[str, list[int]] | None:
    return None if res.active_tasks is None else {t.subtopology_id: t.partitions for t in res.active_tasks}


def settled(*members: str) -> tuple[App, list[Client]]:
    """An application whose internal topics are there and whose members have their tasks."""
    app = App.of({"in": 2, "app-r": 2, "app-c": 2})
    clients = [Client(app.world, m) for m in members]
    for _ in range(4):
        for c in clients:
            app.beat(c)
        app.world.sleep(1_000)
    return app, clients


def test_internal_topics_come_and_two_members_share_the_tasks() -> None:
    app = App.of({"in": 2})
    one, two = Client(app.world, "m1"), Client(app.world, "m2")
    res = app.beat(one)
    assert (codes(res), active(res)) == ([StatusCode.MISSING_INTERNAL_TOPICS], {})
    assert codes(app.beat(one)) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert len(app.started) == 1, "one member is asked, once"
    app.create(("app-r", 0, None), ("app-c", 36, "Topic 'app-c' already exists."))
    assert app.world.looks[-1].names is not None and set(app.world.looks[-1].names) == {"app-r", "app-c"}
    app.world.grow({"app-r": 2, "app-c": 2})
    app.world.sleep(1_000)
    assert active(app.beat(one)) == {"0": [0, 1], "1": [0, 1]}
    app.beat(one)
    app.beat(two)
    app.world.sleep(1_000)
    for _ in range(3):
        app.beat(one)
        app.beat(two)
    assert one.active() | two.active() == {("0", 0), ("0", 1), ("1", 0), ("1", 1)}
    assert not one.active() & two.active()
    assert len(one.active()) == len(two.active()) == 2
    steady = app.beat(one)
    assert (steady.active_tasks, steady.standby_tasks, steady.warmup_tasks) == (None, None, None)


def test_topics_that_the_member_may_not_create_are_told_as_a_broker_tells_them() -> None:
    app = App.of({"in": 2})
    member = Client(app.world, "m1")
    app.beat(member)
    app.create(("app-r", 29, "Authorization failed."), ("app-c", 29, "Authorization failed."))
    (status,) = statuses(app.beat(member))
    assert status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics app-c, app-r.")
    app.world.sleep(11_000)
    assert statuses(app.beat(member)) == [status]
    assert len(app.started) == 1, "it is asked again, and the error is shown until the result"
    assert statuses(app.beat(member)) == [status]
    app.create(("app-r", 0, None), ("app-c", 0, None))
    assert "Unauthorized" not in statuses(app.beat(member))[0].status_detail


def test_a_broker_that_does_not_create_them_is_asked_again() -> None:
    app = App.of({"in": 2})
    member = Client(app.world, "m1")
    app.beat(member)
    app.create(("app-r", 38, "Replication factor: 3 larger than available brokers: 1."))
    (status,) = statuses(app.beat(member))
    assert "app-r (Replication factor: 3 larger than available brokers: 1.)" in status.status_detail
    assert "app-c (" in status.status_detail, "the broker has said nothing of it"


def test_a_member_of_an_older_topology_is_told_so() -> None:
    app, (one,) = settled("m1")
    newer = Client(app.world, "m2", topology=replace(TOPOLOGY, epoch=0))
    assert codes(app.beat(newer)) == [StatusCode.STALE_TOPOLOGY]
    updated = Client(app.world, "m3", topology=replace(TOPOLOGY, epoch=2))
    res = app.beat(updated)
    assert (res.error_code, res.error_message) == (Code.INVALID_REQUEST, "Topology updates are not supported yet.")
    assert codes(app.beat(one)) == []


def test_a_shutdown_is_told_to_everybody() -> None:
    app, (one, two) = settled("m1", "m2")
    app.beat(one, shutdown_application=True)
    assert codes(app.beat(two)) == [StatusCode.SHUTDOWN_APPLICATION]


def test_a_static_member_leaves_for_a_while_and_comes_back_to_its_tasks() -> None:
    app = App.of({"in": 2, "app-r": 2, "app-c": 2})
    before = Client(app.world, "m1", instance_id="i", process_id="p")
    had = active(app.beat(before))
    assert had == {"0": [0, 1], "1": [0, 1]}
    res = app.beat(before, member_epoch=-2, topology=None, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    assert (res.error_code, res.member_epoch, res.heartbeat_interval_ms, res.acceptable_recovery_lag) == (0, -2, 0, -1)
    after = Client(app.world, "m2", instance_id="i", process_id="p")
    assert active(app.beat(after)) == had
    old = app.beat(before, member_epoch=1, topology=None, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    assert old.error_code == Code.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [0, 1])
def test_the_description_has_members_tasks_and_computed_partitions(version: int) -> None:
    app, (one,) = settled("m1")
    group = app.describe(version)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "sticky" if version else None)
    assert group.topology is not None and group.topology.subtopologies is not None
    first, second = group.topology.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == (["in"], ["app-r"])
    assert [(t.name, t.partitions) for t in second.repartition_source_topics] == [("app-r", 2)]
    assert [(t.name, t.partitions, t.topic_configs) for t in second.state_changelog_topics] == [
        ("app-c", 2, [sd.KeyValue("cleanup.policy", "compact")])
    ]
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.process_id) == ("m1", one.epoch, "p-m1")
    assert member.assignment == member.target_assignment
    assert {t.subtopology_id: t.partitions for t in member.assignment.active_tasks} == {"0": [0, 1], "1": [0, 1]}


def test_a_description_is_not_for_everybody() -> None:
    told = StreamsDescribeReply(state="Stable", topology=TOPOLOGY)
    play = streams(Api.STREAMS_GROUP_DESCRIBE, sd.StreamsGroupDescribeRequest(["g"])).may_describe("g")
    play.coordinates(DescribeStreamsGroup("g")).coordinator(told).may_describe_topics(*TOPICS, hidden=["app-c"])
    text = "The described group uses topics that the client is not authorized to describe."
    play.answers(sd.StreamsGroupDescribeResponse(groups=[sd.DescribedGroup(29, text, "g")]))
    play = streams(Api.STREAMS_GROUP_DESCRIBE, sd.StreamsGroupDescribeRequest(["g", "theirs"], False, True))
    play = play.asks(sd.StreamsGroupDescribeRequest(["theirs"], False, True))
    theirs = sd.DescribedGroup(0, None, "theirs", "Empty")
    play.broker(sd.StreamsGroupDescribeResponse(groups=[theirs])).may_describe("g", hidden=["g"])
    play.answers(sd.StreamsGroupDescribeResponse(groups=[sd.DescribedGroup(30, None, "g"), theirs]))


def test_descriptions_of_topologies_are_not_stored() -> None:
    request = sd.StreamsGroupDescribeRequest(["g"], False, True)
    play = streams(Api.STREAMS_GROUP_DESCRIBE, request).may_describe("g").coordinates(DescribeStreamsGroup("g"))
    play.coordinator(StreamsDescribeReply(state="Empty", assignor="sticky"))
    group = sd.DescribedGroup(0, None, "g", "Empty", topology_description_status=1, assignor_name="sticky")
    play.answers(sd.StreamsGroupDescribeResponse(groups=[group]))


# ---- offsets --------------------------------------------------------------------------------------------------------
def commits(app: App, member: Client, epoch: int, *partitions: int, topic: str = "in") -> Play:
    parts = [oc.OffsetCommitRequestPartition(p, 1) for p in partitions]
    topics = [oc.OffsetCommitRequestTopic(topic, partitions=parts)]
    request = oc.OffsetCommitRequest("g", epoch, member.member_id, None, topics=topics)
    return app.play(Api.OFFSET_COMMIT, request, 9).core(app.world.ask)


def stored(*rows: tuple[int, Code], topic: str = "in") -> oc.OffsetCommitResponse:
    parts = [oc.OffsetCommitResponsePartition(p, code) for p, code in rows]
    return oc.OffsetCommitResponse(topics=[oc.OffsetCommitResponseTopic(topic, partitions=parts)])


def test_a_member_commits_for_its_tasks_and_for_no_others() -> None:
    app, (one, two) = settled("m1", "m2")
    (mine,) = (p for s, p in one.active() if s == "0")
    (other,) = (p for s, p in two.active() if s == "0")
    topics = [oc.OffsetCommitRequestTopic("in", partitions=[oc.OffsetCommitRequestPartition(mine, 1)])]
    sent = oc.OffsetCommitRequest("g", -1, "", None, topics=topics)
    answer = stored((mine, Code.NONE))
    commits(app, one, one.epoch, mine).asks(sent).broker(answer).answers(answer)
    both = stored((mine, Code.STALE_MEMBER_EPOCH), (other, Code.STALE_MEMBER_EPOCH))
    commits(app, one, one.epoch, mine, other).answers(both)
    commits(app, one, one.epoch + 1, mine).answers(stored((mine, Code.STALE_MEMBER_EPOCH)))
    stranger = Client(app.world, "m9")
    commits(app, stranger, 1, mine).answers(stored((mine, Code.UNKNOWN_MEMBER_ID)))


def test_offsets_of_the_topology_stay_while_there_are_members() -> None:
    app, _ = settled("m1")
    parts = [od.OffsetDeleteRequestPartition(0)]
    request = od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic("in", parts)])
    play = app.play(Api.OFFSET_DELETE, request, 0).may_delete("g").core(app.world.ask).may_read_topics("in")
    kept = od.OffsetDeleteResponsePartition(0, Code.GROUP_SUBSCRIBED_TO_TOPIC)
    play.answers(od.OffsetDeleteResponse(topics=[od.OffsetDeleteResponseTopic("in", [kept])]))


def test_a_group_goes_when_its_members_have_gone() -> None:
    app, (one,) = settled("m1")
    request = dl.DeleteGroupsRequest(["g"])
    play = app.play(Api.DELETE_GROUPS, request, 3).may_delete("g").core(app.world.ask)
    play.answers(dl.DeleteGroupsResponse(results=[dl.DeletableGroupResult("g", Code.NON_EMPTY_GROUP)]))
    one.leave()
    play = app.play(Api.DELETE_GROUPS, request, 3).may_delete("g").coordinates(DeletionCheck("g"))
    play.coordinator(app.world.ask(DeletionCheck("g"))).opens("g")
    gone = dl.DeleteGroupsResponse(results=[dl.DeletableGroupResult("g", 0)])
    play.asks(request).broker(gone).coordinates(DeleteGroup("g", f"deleted by {WHO.replace('10.0.0.9', 'h')}"))
    play.coordinator(app.world.ask(DeleteGroup("g"))).answers(gone)
    assert "g" not in app.world.shard.groups
