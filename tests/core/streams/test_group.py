"""The hard state of a streams group: replay, what compaction leaves, states, holders, and the records' schemas."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from sidecar.core.runtime.records import Record, RecordKind, Tombstone, single
from sidecar.core.streams.group import NOT_VALIDATED, Member, StreamsGroup, streams_group
from sidecar.core.streams.records import (
    RECORDS,
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    TargetMemberRecord,
    TargetMetadataRecord,
    TargetRecord,
    TaskTargets,
    TopologyRecord,
)
from sidecar.core.streams.tasks import NO_TASKS, NOTHING_ASSIGNED, AssignedTasks, Tasks
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code, CoordinatorError, InvariantError
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.schema import Schemas
from tests.core.world import topic

REPARTITION = TopicInfo("r", 0, 3, (("k", "v"),))
TOPOLOGY = Topology(
    3,
    (
        Subtopology("0", ("in", "also"), ("r",), (), (), (CopartitionGroup((0, 1)),)),
        Subtopology(
            "1", (), (), (TopicInfo("r", 0, 3, (("k", "v"),)),), (TopicInfo("c"),), (CopartitionGroup((), (0,)),)
        ),
    ),
)
HELD = AssignedTasks({"0": {1: 4, 2: 5}}, {"1": (0,)}, {"1": (3,)})
PENDING = AssignedTasks({"0": {3: 4}}, {"0": (2,)}, {"0": (0,)})


def member(name: str = "m", instance: str | None = None, process: str = "p", **more: Any) -> MemberRecord:
    return MemberRecord("g", name, instance, "rack", "client", "/host", 300_000, 3, process, **more)


def current(name: str = "m", assigned: AssignedTasks = HELD, pending: AssignedTasks = PENDING) -> CurrentRecord:
    state = MemberState.UNREVOKED_TASKS if pending else MemberState.STABLE
    return CurrentRecord("g", name, 5, 4, state, assigned, pending, "reconciled")


def group_of(*records: Record) -> StreamsGroup:
    group = StreamsGroup("g")
    for r in records:
        group.replay(r)
    return group


def full_group() -> StreamsGroup:
    target = TargetRecord("g", TaskTargets({"m": Tasks({"0": (1,)})}), ("m",), 5, 1_000, "sticky", {})
    return group_of(GroupRecord("g", 5, 9, 3), TopologyRecord("g", TOPOLOGY), member(instance="i"), target, current())


# ---- records ----------------------------------------------------------------------------------------------
ALL = [
    GroupRecord("g", 7, -5, 3, {"num.standby.replicas": "1"}, 1_795_000_000_000, 2, "m", "why"),
    GroupRecord("g", 1, 0),
    TopologyRecord("g", TOPOLOGY, True, "first member"),
    member(instance="i", endpoint=("host", 8080), client_tags={"zone": "a"}, why="joined"),
    MemberRecord("g", "m", None, None, "", "", -1, -1, ""),
    TargetMetadataRecord("g", 5, 1_795_000_000_000, "sticky", "assignor ran"),
    TargetMemberRecord("g", "m", Tasks({"0": (1, 2)}, {"1": (0,)}, {"1": (3,)}), "assignor ran"),
    current(),
    CurrentRecord("g", "m", 0, 0, MemberState.STABLE, NOTHING_ASSIGNED, NOTHING_ASSIGNED),
]
KINDS = {kind.name: kind for kind in RECORDS}


@pytest.mark.parametrize("record", ALL, ids=lambda r: type(r).__name__)
def test_a_record_survives_its_schema(record: Any) -> None:
    row: RecordKind = KINDS[record.kind]
    schemas = Schemas({row.name: row.schema})
    head = {"owner_epoch": 1, "time_ms": 2, "revision": 3, "why": record.why}
    body = schemas.decode(schemas.encode(row.name, {**head, **record.body()}))
    assert row.cls.of("g", record.sub_id, body) == record


def test_a_target_is_written_member_by_member_and_then_its_epoch() -> None:
    targets = {"a": Tasks({"0": (1,)}), "b": Tasks({"0": (2,)})}
    record = TargetRecord("g", TaskTargets(targets), ("b", "gone"), 6, 1_000, "sticky", {}, "assignor ran")
    parts = list(single([record]))
    assert [(r.kind, r.sub_id) for r in parts] == [
        (Kind.TARGET_MEMBER, "b"),
        (Kind.TARGET_MEMBER, "gone"),
        (Kind.TARGET_METADATA, ""),
    ]
    one, other = group_of(record), group_of(*parts)
    assert one == other and one.assignment_epoch == 6 and one.target_of("b") == targets["b"]
    assert one.target_of("gone") == one.target_of("unknown") == NO_TASKS


# ---- replay -----------------------------------------------------------------------------------------------
def test_a_new_group_has_epoch_one() -> None:
    group = StreamsGroup("g")
    assert (group.epoch, group.assignment_epoch, group.validated_topology_epoch) == (1, 1, NOT_VALIDATED)
    assert (group.state_name(), group.protocol_type, group.kind) == ("Empty", "streams", "streams")


def test_a_rebuild_ends_where_the_owner_was() -> None:
    """In the order of RECORDS, with one value for each key."""
    live = full_group()
    live.replay(member("n", process="q"))
    live.replay(current("n", AssignedTasks({"1": {0: 5}}), NOTHING_ASSIGNED))
    log: list[Record] = [GroupRecord("g", 5, 9, 3), TopologyRecord("g", TOPOLOGY)]
    log += [member(instance="i"), member("n", process="q")]
    log += [TargetMetadataRecord("g", 5, 1_000, "sticky"), TargetMemberRecord("g", "m", Tasks({"0": (1,)}))]
    log += [current(), current("n", AssignedTasks({"1": {0: 5}}), NOTHING_ASSIGNED)]
    assert group_of(*log) == live


def test_parts_that_compaction_leaves() -> None:
    """A member without current, a current whose member is gone, a target of one that is gone."""
    group = group_of(member("alone"), current("gone"), TargetMemberRecord("g", "gone", Tasks({"0": (1,)})))
    assert list(group.members) == ["alone"] and group.members["alone"].member_epoch == 0
    assert group.holders.active_member("0", 1) is None
    assert Tombstone(Kind.TARGET_MEMBER, "g", "gone", "why") in group.tombstones("why")


@pytest.mark.parametrize("kind", list(Kind))
def test_tombstones_of_the_unknown(kind: Kind) -> None:
    assert group_of(Tombstone(kind, "g", "nobody")) == StreamsGroup("g")


def test_a_record_of_another_kind_of_group() -> None:
    with pytest.raises(InvariantError, match="no record RecordKind"):
        StreamsGroup("g").replay(RECORDS[0])  # type: ignore[arg-type]


def test_tombstones_leave_nothing() -> None:
    group = full_group()
    stones = group.tombstones("deleted")
    assert stones[-1] == Tombstone(Kind.GROUP, "g", "", "deleted")
    assert {(t.kind, t.sub_id) for t in stones} == {
        (Kind.GROUP, ""),
        (Kind.TOPOLOGY, ""),
        (Kind.TARGET_METADATA, ""),
        (Kind.MEMBER, "m"),
        (Kind.TARGET_MEMBER, "m"),
        (Kind.CURRENT, "m"),
    }
    for stone in stones:
        group.replay(stone)
    assert group.held_bytes == 0 and not group.members and not group.static_members and not group.target
    assert group.holders == StreamsGroup("g").holders and group.topology is None


def test_an_active_task_has_one_holder() -> None:
    group = full_group()
    group.replay(member("n", process="q"))
    for taken in (AssignedTasks({"0": {1: 5}}), AssignedTasks({"0": {3: 5}})):
        with pytest.raises(InvariantError, match=r"active task 0-[13] of m assigned to n"):
            group.replay(current("n", taken, NOTHING_ASSIGNED))


def test_holders_by_role_and_process() -> None:
    group = full_group()
    group.replay(member("n", process="q"))
    group.replay(current("n", AssignedTasks({}, {"1": (0,)}), NOTHING_ASSIGNED))
    holders = group.holders
    assert (holders.active_member("0", 3), holders.active_process("0", 3)) == ("m", "p")  # not given up yet
    assert sorted(holders.standby_processes("1", 0)) == ["p", "q"]
    assert list(holders.warmup_processes("1", 3)) == ["p"] and not list(holders.warmup_processes("1", 4))
    group.replay(member(instance="i", process="r"))  # it says that it runs elsewhere now
    assert holders.active_process("0", 1) == "r" and sorted(holders.standby_processes("1", 0)) == ["q", "r"]
    group.replay(current(assigned=NOTHING_ASSIGNED, pending=NOTHING_ASSIGNED))
    assert holders.active == {} and list(holders.standby_processes("1", 0)) == ["q"]


def test_a_process_keeps_a_task_while_one_of_its_members_has_it() -> None:
    """Kafka forgets the process with the first of them."""
    group = group_of(member("a"), member("b"))
    for name in "ab":
        group.replay(current(name, AssignedTasks({}, {"1": (0,)}), NOTHING_ASSIGNED))
    group.replay(Tombstone(Kind.MEMBER, "g", "a"))
    assert list(group.holders.standby_processes("1", 0)) == ["p"]


def test_a_static_member_is_replaced() -> None:
    group = full_group()
    for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
        group.replay(Tombstone(kind, "g", "m"))
    group.replay(member("n", instance="i"))
    assert group.static_members == {"i": "n"} and group.static_member("i") is group.members["n"]
    group.replay(Tombstone(Kind.MEMBER, "g", "m"))
    assert group.static_member("i") is group.members["n"] and group.static_member(None) is None


def test_an_instance_id_is_the_last_members() -> None:
    group = group_of(member(instance="i"), member("n", instance="i"), Tombstone(Kind.MEMBER, "g", "m"))
    assert group.static_members == {"i": "n"}
    group.replay(member("n", instance="j"))
    assert group.static_members == {"j": "n"}


def test_a_current_tombstone_takes_the_tasks() -> None:
    group = full_group()
    group.replay(Tombstone(Kind.CURRENT, "g", "m"))
    m = group.members["m"]
    assert (m.member_epoch, m.previous_epoch, m.assigned, m.pending) == (-1, -1, NOTHING_ASSIGNED, NOTHING_ASSIGNED)
    assert group.holders == StreamsGroup("g").holders


def test_bytes_come_and_go_with_their_members() -> None:
    group, rng = StreamsGroup("g"), random.Random(1)
    for i in range(60):
        name = rng.choice("abc")
        tags = {"zone": "z" * rng.randint(0, 9)}
        known = name in group.members
        group.replay(
            member(name, endpoint=("h" * i, 1), client_tags=tags)
            if rng.random() < 0.7 or not known
            else (Tombstone(Kind.MEMBER, "g", name))
        )
    for name in list(group.members):
        group.replay(Tombstone(Kind.MEMBER, "g", name))
    assert group.members_bytes == 0
    assert full_group().held_bytes > full_group().members_bytes > 1_000


# ---- states and queries -----------------------------------------------------------------------------------
def states(records: Iterable[Record]) -> list[str]:
    group, told = StreamsGroup("g"), []
    for r in records:
        group.replay(r)
        told.append(group.state_name())
    return told


def test_the_states_of_a_group() -> None:
    stable = CurrentRecord("g", "m", 2, 1, MemberState.STABLE, HELD, NOTHING_ASSIGNED)
    later = CurrentRecord("g", "m", 3, 2, MemberState.UNRELEASED_TASKS, HELD, NOTHING_ASSIGNED)
    assert states(
        [
            TopologyRecord("g", TOPOLOGY),
            member(),
            GroupRecord("g", 2, 0, NOT_VALIDATED),
            GroupRecord("g", 2, 0, 3),
            TargetMetadataRecord("g", 2, 0, "sticky"),
            stable,
            TargetMetadataRecord("g", 3, 0, "sticky"),
            later,
            TopologyRecord("g", Topology(4)),
            Tombstone(Kind.TOPOLOGY, "g", ""),
            Tombstone(Kind.MEMBER, "g", "m"),
        ]
    ) == [
        "Empty",
        "NotReady",
        "NotReady",
        "Assigning",
        "Reconciling",
        "Stable",
        "Reconciling",
        "Reconciling",
        "NotReady",
        "NotReady",
        "Empty",
    ]


def test_offsets_of_its_topics_are_needed_while_it_has_members() -> None:
    group = full_group()
    assert group.deletion_check().subscribed == {"in", "also", "r"} and group.deletion_check().members == 1
    assert group.subtopology_of_topic == {"in": "0", "also": "0", "r": "1"}
    group.replay(Tombstone(Kind.MEMBER, "g", "m"))
    assert group.deletion_check().exists and not group.deletion_check().subscribed


def test_the_epoch_of_an_active_task() -> None:
    m = full_group().members["m"]
    assert [m.active_epoch("0", p) for p in range(5)] == [None, 4, 5, 4, None]
    assert m.active_epoch("9", 0) is None


def test_the_hash_is_over_all_required_topics() -> None:
    names = ("in", "also", "r", "c", "other")
    image, _ = TopicImage().next([topic(i, n, 2) for i, n in enumerate(names)])
    group = full_group()
    assert group.hash_over(image) == image.hash_of(names[:4]) == StreamsGroup("g").hash_over(image, TOPOLOGY)
    grown, _ = image.next([topic(i, n, 3 if n == "c" else 2) for i, n in enumerate(names)])
    assert group.hash_over(grown) != group.hash_over(image)
    assert StreamsGroup("g").hash_over(image) == 0


def test_a_group_of_another_kind() -> None:
    group = full_group()
    assert streams_group({"g": group}, "g") is group and streams_group({}, "g") is None
    with pytest.raises(CoordinatorError) as refused:
        streams_group({"g": object()}, "g")
    assert (refused.value.code, refused.value.message) == (Code.GROUP_ID_NOT_FOUND, "Group g is not a streams group.")


def test_a_member_begins_as_kafkas_does() -> None:
    m = Member("m")
    assert (m.member_epoch, m.previous_epoch, m.topology_epoch, m.process_id) == (0, 0, -1, "")
    assert m.reconciled_to(0) and not m.reconciled_to(1)
