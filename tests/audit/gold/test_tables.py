"""Small logs written by hand, and faults that are planted: each is found and named. All of them in one fold, each in a
state partition of its own."""

from __future__ import annotations

import duckdb
import pytest

from sidecar.audit.ask.query import OWNERSHIP
from sidecar.audit.tables.gold import GOLD
from tests.audit.gold.harness import Tables, differences, gold, rows_of
from tests.audit.gold.replay import Row, replay
from tests.audit.gold.rows import Log
from tests.audit.gold.test_random import broken

REVOKES, CLASSIC, STATIC, VOID, FENCED, ANEW, SECOND, BACK, LOST, TOLD, UPGRADED, MARKED, TAKEN = range(13)
SHARED, TWICE = 13, 14


def revokes(log: Log) -> None:
    log.claim(1)
    log.member("g", "m1")
    log.group("g", 1)
    log.target("g", 1, m1=[0, 1])
    log.current("g", "m1", 1, [0, 1])
    log.member("g", "m2")
    log.group("g", 2)
    log.target("g", 2, m1=[0], m2=[1])
    log.current("g", "m1", 1, [0], [1])
    log.current("g", "m1", 2, [0])
    log.current("g", "m2", 2, [1])
    log.put("config", "g", "consumer.session.timeout.ms", value="50000")
    log.put("config", "", "1/i/sidecar.member", value="{}")  # no setting: what a sidecar says of itself


def waits(log: Log) -> None:
    log.claim(1)
    log.joins("g", "m1")
    log.joins("g", "m2")
    log.classic("g", "PreparingRebalance", 0, -1, protocol=None)
    log.classic("g", "CompletingRebalance", 1, -1)
    log.assign("g", "m1", 1, [0])
    log.assign("g", "m2", 1, [1])
    log.classic("g", "Stable", 1, 1)
    log.classic("g", "PreparingRebalance", 1, 1)
    log.classic("g", "CompletingRebalance", 2, 1)
    log.assign("g", "m2", 2, [0])
    log.assign("g", "m1", 2, [1])
    log.classic("g", "Stable", 2, 2)


def static(log: Log) -> None:
    log.claim(1)
    log.member("g", "m1", instance_id="i1")
    log.put("static_member", "g", "i1", member_id="m1")
    log.group("g", 1)
    log.target("g", 1, m1=[0])
    log.current("g", "m1", 1, [0])
    log.leave("g", "m1")
    log.member("g", "m2", instance_id="i1")
    log.current("g", "m2", 1, [0])
    log.put("static_member", "g", "i1", member_id="m2")


def void(log: Log) -> None:
    log.claim(1)
    log.claim(2)
    log.current("g", "m1", 1, [0], owner_epoch=1)
    log.current("g", "m2", 1, [0])
    log.current("g", "m3", 1, [0], owner_epoch=3)


def fenced(log: Log) -> None:
    log.claim(9)
    log.claim(5)


def deleted_and_created_again(log: Log) -> None:
    log.claim(1)
    for _ in range(2):
        log.member("g", "m1")
        log.group("g", 1)
        log.target("g", 1, m1=[0])
        log.current("g", "m1", 1, [0])
        log.leave("g", "m1")
        log.put("target_metadata", "g", gone=True)
        log.put("group", "g", gone=True)


def assigned_while_pending(log: Log) -> None:
    log.claim(1)
    for m in ("m1", "m2"):
        log.member("g", m)
    log.current("g", "m1", 1, [0], [1])
    log.current("g", "m2", 1, [1])


def epoch_goes_back(log: Log) -> None:
    log.claim(1)
    log.group("g", 7)
    log.group("g", 6)


def removed_without_its_partitions(log: Log) -> None:
    """The member's records are removed, but not its current assignment."""
    log.claim(1)
    for m in ("m1", "m2"):
        log.member("g", m)
    log.put("current", "g", "m1", member_epoch=1, assigned=[], pending=[], state="STABLE")
    log.current("g", "m1", 1, [0])
    log.put("target_member", "g", "m1", gone=True)
    log.current("g", "m2", 2, [0])


def same_stale_claims_twice(log: Log) -> None:
    said = [{"topic": "t", "partitions": [0], "generation": 1, "holder": "m2"}]
    log.claim(1)
    log.joins("g", "m1", stale_claims=said)
    log.joins("g", "m1", stale_claims=said)


def upgraded(log: Log) -> None:
    """The members are in the first epoch before the group is."""
    log.claim(1)
    for m, p in (("m1", 0), ("m2", 1)):
        log.member("g", m)
        log.current("g", m, 4, [p])
    log.target("g", 4, m1=[0], m2=[1])
    log.group("g", 4)
    log.leave("g", "m2")
    log.group("g", 5)
    log.target("g", 5, m1=[0, 1])
    log.current("g", "m1", 5, [0, 1])


def goes_back_and_forth(log: Log) -> None:
    log.claim(1)
    for m, held in (("m1", []), ("m2", []), ("m1", [0]), ("m1", []), ("m2", [0])):
        if not held and log.revisions.get(("current", "g", m)) is None:
            log.member("g", m)
        log.current("g", m, 1, held)


def marked(log: Log) -> None:
    """Markers of transactions take offsets, but the values of each key follow each other."""
    goes_back_and_forth(log)
    for row in log.rows[6:]:
        row["offset"] += 1
    for row in log.rows[7:]:
        row["offset"] += 4


def taken(log: Log) -> None:
    """Writes a log from which compaction took every record of a member that may have owned the partition."""
    goes_back_and_forth(log)
    del log.rows[1:5]


def shared(log: Log) -> None:
    """Two have partition 0 at once, which is as it should be; nobody has partition 1 for a while."""
    log.claim(1)
    log.share_member("g", "m1")
    log.put("share_group", "g", epoch=1, metadata_hash=1)
    log.placeholder("g", [0, 1])
    log.put("share_target_metadata", "g", epoch=1, assignment_timestamp_ms=1, assignor="simple")
    log.share_current("g", "m1", 1, [0, 1])
    log.share_member("g", "m2")
    log.share_current("g", "m2", 2, [0])
    log.share_current("g", "m1", 2, [0])
    log.share_current("g", "m2", 2, [0, 1])
    log.remove_member("share", "g", "m1")
    log.remove_member("share", "g", "m2")


def twice(log: Log) -> None:
    """Two have the same active task, and a third the same as a standby in the process of the first. The topology is not
    ready at first."""
    log.claim(1)
    for m, process in (("m1", "p1"), ("m2", "p2"), ("m3", "p1")):
        log.streams_member("g", m, process)
    log.put("streams_group", "g", epoch=1, validated_topology_epoch=-1)
    log.put("streams_group", "g", epoch=2, validated_topology_epoch=1)
    log.put("streams_target_metadata", "g", epoch=2, assignment_timestamp_ms=1, assignor="sticky")
    log.streams_current("g", "m1", 2, active=[0, 1])
    log.streams_current("g", "m1", 2, active=[1], pending_active=[0])
    log.streams_current("g", "m2", 2, active=[0])
    log.streams_current("g", "m3", 2, standby=[1])
    log.put("streams_group", "g", epoch=2, validated_topology_epoch=1, endpoint_epoch=1)
    log.streams_current("g", "m1", 2, active=[1], standby=[2])
    log.remove_member("streams", "g", "m3")


STORIES = (
    *(
        revokes,
        waits,
        static,
        void,
        fenced,
        deleted_and_created_again,
        assigned_while_pending,
        epoch_goes_back,
        removed_without_its_partitions,
        same_stale_claims_twice,
        upgraded,
        marked,
        taken,
    ),
    *(shared, twice),
)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    logs = [Log(p) for p in range(len(STORIES))]
    for story, log in zip(STORIES, logs, strict=True):
        story(log)
    return [r for log in logs for r in log.rows]


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> Tables:
    return gold(rows)


def columns_of(found: Tables, table: str, partition: int, *columns: str) -> list[tuple[object, ...]]:
    key = "from_offset" if "from_offset" in found[table][0] else "offset"
    rows = sorted((r for r in found[table] if r["state_partition"] == partition), key=lambda r: (r[key], repr(r)))
    return [tuple(r[c] for c in columns) for r in rows]


def test_the_replay_agrees(rows: list[Row], found: Tables) -> None:
    readable = [r for r in rows if r["state_partition"] not in (MARKED, TAKEN)]
    told = {t: [r for r in rs if r["state_partition"] not in (MARKED, TAKEN)] for t, rs in found.items()}
    assert differences(told, replay(readable)) == []


def test_a_partition_is_owned_until_it_was_given_up(found: Tables) -> None:
    columns = (
        "partition",
        "member_id",
        "from_offset",
        "to_offset",
        "revoking_from_offset",
        "first_epoch",
        "last_epoch",
    )
    assert columns_of(found, "intervals", REVOKES, *columns) == [
        (0, "m1", 5, None, None, 1, 2),
        (1, "m1", 5, 12, 11, 1, 1),
        (1, "m2", 13, None, None, 2, 2),
    ]
    assert columns_of(found, "unowned", REVOKES, "partition", "from_offset", "to_offset", "grade") == [
        (1, 12, 13, "proven")
    ]
    columns = ("epoch", "cause", "member_id", "members", "partitions_moved", "settled_offset", "open")
    assert columns_of(found, "rebalances", REVOKES, *columns) == [
        (1, "joined", "m1", 1, 2, 5, False),
        (2, "joined", "m2", 2, 1, 13, False),
    ]
    assert columns_of(found, "setting_changes", REVOKES, "name", "value") == [("consumer.session.timeout.ms", "50000")]


def test_assignments_of_a_generation_count_from_the_same_record(found: Tables) -> None:
    assert columns_of(
        found, "intervals", CLASSIC, "partition", "member_id", "from_offset", "to_offset", "first_epoch"
    ) == [
        (0, "m1", 7, 12, 1),
        (1, "m2", 7, 12, 1),
        (0, "m2", 12, None, 2),
        (1, "m1", 12, None, 2),
    ]
    assert {r["state_partition"] for r in found["second_owners"]} == {SECOND, LOST, TAKEN, TWICE}, (
        "where they are planted"
    )
    columns = ("epoch", "from_offset", "members", "partitions_moved", "settled_offset")
    assert columns_of(found, "rebalances", CLASSIC, *columns) == [(1, 3, 2, 2, 7), (2, 8, 2, 2, 12)]


def test_an_instance_id_goes_from_member_to_member(found: Tables) -> None:
    columns = ("instance_id", "member_id", "from_offset", "to_offset")
    assert columns_of(found, "static_member_history", STATIC, *columns) == [("i1", "m1", 2, 12), ("i1", "m2", 12, None)]
    assert columns_of(found, "members", STATIC, "member_id", "instance_id", "to_offset") == [
        ("m1", "i1", 9),
        ("m2", "i1", None),
    ]


def test_a_group_that_begins_anew(found: Tables) -> None:
    assert columns_of(found, "rebalances", ANEW, "epoch", "anew") == [(1, True), (1, True)]
    assert columns_of(found, "members", ANEW, "open") == [(False,), (False,)]


def test_the_members_of_an_upgraded_group_are_there_before_it(found: Tables) -> None:
    columns = ("epoch", "members", "target_offset", "settled_offset", "superseded")
    assert columns_of(found, "rebalances", UPGRADED, *columns) == [(4, 2, None, 8, False), (5, 1, 14, 15, False)]


def test_offsets_that_transactions_take_leave_no_doubt(found: Tables) -> None:
    columns = ("from_offset", "to_offset", "grade")
    assert columns_of(found, "unowned", MARKED, *columns) == [(7, 12, "proven")]
    assert columns_of(found, "unowned", TAKEN, *columns) == [(6, 7, "possible")]
    columns = ("first_hole_offset", "whole_from_offset", "missing")
    assert [r[c] for r in found["coverage"] for c in columns if at_of(r) == (MARKED, "partition")] == [6, 0, 0]
    assert [r[c] for r in found["coverage"] for c in columns if at_of(r) == (TAKEN, "partition")] == [1, None, 2]


def test_several_members_may_hold_a_partition_of_a_share_group_and_one_must(found: Tables) -> None:
    columns = ("partition", "member_id", "from_offset", "to_offset", "first_epoch", "last_epoch")
    assert columns_of(found, "share_holdings", SHARED, *columns) == [
        (0, "m1", 5, 10, 1, 2),
        (1, "m1", 5, 8, 1, 1),
        (0, "m2", 7, 13, 2, 2),
        (1, "m2", 9, 13, 2, 2),
    ]
    told = columns_of(
        found, "share_coverage", SHARED, *("partition", "former_member_id", "from_offset", "member_id", "to_offset")
    )
    assert told == [
        (0, None, 3, "m1", 5),
        (1, None, 3, "m1", 5),
        (1, "m1", 8, "m2", 9),
        (0, "m2", 13, None, 15),
        (1, "m2", 13, None, 15),
    ]
    assert columns_of(found, "holders", SHARED, "partition", "holders", "from_offset", "to_offset") == [
        (0, 1, 5, 7),
        (1, 1, 5, 8),
        (0, 2, 7, 10),
        (1, 1, 9, 13),
        (0, 1, 10, 13),
    ]
    of_each = ("partition", "subscribed_offset", "offset", "after_ms", "grade")
    assert columns_of(found, "share_initialised", SHARED, *of_each) == [
        (0, 1, 3, 20, "proven"),
        (1, 1, 3, 20, "proven"),
    ]
    assert columns_of(found, "share_placeholder_history", SHARED, "member_id", "from_offset", "to_offset") == [
        ("p", 3, None)
    ]
    told = columns_of(found, "rebalances", SHARED, "kind", "epoch", "cause", "members", "settled_offset")
    assert told == [("share", 1, "joined", 1, 5)]


def test_tasks_are_had_by_role_and_process(found: Tables) -> None:
    columns = ("partition", "role", "member_id", "process_id", "from_offset", "to_offset", "revoking_from_offset")
    assert columns_of(found, "streams_tasks", TWICE, *columns) == [
        (0, "active", "m1", "p1", 7, 12, 8),
        (1, "active", "m1", "p1", 7, None, None),
        (0, "active", "m2", "p2", 9, None, None),
        (1, "standby", "m3", "p1", 10, 13, None),
        (2, "standby", "m1", "p1", 12, None, None),
    ]
    of_each = ("partition", "role", "holders", "from_offset", "to_offset")
    assert columns_of(found, "holders", TWICE, *of_each) == [(1, "standby", 1, 10, 13), (2, "standby", 1, 12, None)]
    told = columns_of(
        found, "second_owners", TWICE, "kind", "topic", "partition", "member_id", "other_member_id", "grade"
    )
    assert told == [
        ("streams", "0", 0, "m2", "m1", "proven"),
        ("streams", "0 in process p1", 1, "m3", "m1", "proven"),
    ]
    assert columns_of(found, "streams_not_ready", TWICE, "from_offset", "to_offset") == [(4, 5)]
    assert columns_of(found, "rebalances", TWICE, "kind", "epoch", "anew") == [
        ("streams", 1, True),
        ("streams", 2, False),
    ]
    assert columns_of(found, "members", TWICE, "member_id", "process_id") == [("m1", "p1"), ("m2", "p2"), ("m3", "p1")]


def test_who_had_what_is_asked_of_all_kinds(found: Tables) -> None:
    everything = {"topic": None, "partition": None, "group": None, "since": 0, "until": 1 << 60}
    with duckdb.connect() as db:
        for name, table in GOLD.items():
            db.register(name, rows_of(table, found.get(name, [])))
        told = {row[1:4] for row in db.execute(OWNERSHIP, everything).fetchall()}
    assert {("task 0", 0, "m2"), ("task 0 standby", 1, "m3"), ("t", 1, "m2")} <= told


def at_of(r: Row) -> tuple[object, ...]:
    return r["state_partition"], r["scope"]


def test_planted_faults_are_found_and_named(found: Tables) -> None:
    assert columns_of(found, "stale_writes", VOID, "offset", "what", "owner_epoch") == [
        (2, "record", 1),
        (4, "record", 3),
    ]
    assert columns_of(found, "intervals", VOID, "member_id") == [("m2",)]
    assert columns_of(found, "stale_writes", FENCED, "offset", "what") == [(1, "claim")]
    assert columns_of(found, "coordinators", FENCED, "claim", "fenced", "to_offset") == [(9, False, 1), (5, True, None)]
    columns = ("partition", "member_id", "other_member_id", "grade")
    assert columns_of(found, "second_owners", SECOND, *columns) == [(1, "m2", "m1", "proven")]
    assert columns_of(found, "second_owners", LOST, *columns) == [(0, "m2", "m1", "proven")]
    assert columns_of(found, "rebalances", BACK, "epoch", "anew", "went_back") == [(7, True, False), (6, False, True)]
    assert [r["state_partition"] for r in found["rebalances"] if r["went_back"]] == [BACK]
    names = set(broken(found))
    assert {"one_owner", "no_stale_writes", "epochs_rise"} <= names
    assert names <= {"one_owner", "no_stale_writes", "epochs_rise", "known_members"}


def test_a_stale_claim_is_told_once(found: Tables) -> None:
    assert columns_of(found, "stale_claims", TOLD, "offset", "member_id", "partitions", "holder") == [
        (1, "m1", [0], "m2")
    ]
