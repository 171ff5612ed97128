"""Sidecars of two versions in one owners' group, and a log that a newer one has written."""

from __future__ import annotations

import json

import pytest

from sidecar.coordinator.membership.owners_protocol import Assignment, SidecarInfo
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.consumer.records import GroupRecord
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.state.codec import SCHEMA, Stamp, StateCodec
from sidecar.state.keys import StateKey
from sidecar.state.schema import published
from tests.inprocess.embedded_sidecar import Counted, Lines

NEWER = {"of_tomorrow": {"a": [1, 2]}}


def test_what_a_newer_sidecar_says_of_itself_is_understood() -> None:
    said = SidecarInfo(1, "h", 9092, 5, 7001, {"include": ["a.*"], "exclude": []})
    told = json.loads(said.encode())
    patterns = told["patterns"] | NEWER
    assert SidecarInfo.decode(json.dumps(told | NEWER | {"patterns": patterns}).encode()) == said


def test_what_an_older_sidecar_says_of_itself_is_understood() -> None:
    told = {"node_id": 1, "host": "h", "port": 9092}
    assert SidecarInfo.decode(json.dumps(told).encode()) == SidecarInfo(1, "h", 9092)


def test_an_assignment_of_a_newer_leader_is_understood() -> None:
    made = Assignment(4, (1, 2), {1: ("m1", "h", 1), 2: ("m2", "h", 2)}, {1: {"include": ["a"], "exclude": []}}, {1: 7})
    told = json.loads(made.encode())
    told["members"] = {n: [*m, "more"] for n, m in told["members"].items()}
    assert Assignment.decode(4, json.dumps(told | NEWER).encode()) == made


def log_with(kind: str, value: bytes) -> StateLog:
    """Partition 0 has a group that can be read, and one with a record of this kind and value."""
    codec = StateCodec()
    log = StateLog(1, codec, Lines(), Counted())
    good = codec.encode(GroupRecord("good", 5, 1, "joined"), Stamp(7 << 16, 1), 1)
    log.apply(0, 0, StateKey("group", "good", ""), good.value)
    log.apply(0, 1, StateKey(kind, "newer", "m"), value)
    return log


def test_a_group_with_a_record_of_a_newer_kind_is_not_rebuilt_and_the_others_are() -> None:
    value = StateCodec().encode(GroupRecord("newer", 5, 1, "joined"), Stamp(7 << 16, 1), 1).value
    log = log_with("of_tomorrow", value or b"")
    assert [r and r.group_id for r in log.records(0, "good")] == ["good"]
    with pytest.raises(InvariantError, match="a newer version may have written it"):
        list(log.records(0, "newer"))


def test_a_schema_that_comes_behind_its_value_is_learned_in_time() -> None:
    """Compaction keeps the last copy of a schema, which may stand behind values that need it."""
    text = json.loads(published()["group-v1"])
    text["fields"].append({"name": "of_tomorrow", "type": "int", "default": 0})
    writer = StateCodec(files={**published(), "group-v1": json.dumps(text)})
    value = writer.encode(GroupRecord("newer", 5, 1, "joined"), Stamp(7 << 16, 1), 1).value
    log = log_with("group", value or b"")
    log.partitions[0].groups["newer"] = {StateKey("group", "newer", ""): value or b""}
    with pytest.raises(InvariantError, match="unknown schema"):
        list(log.records(0, "newer"))
    log.apply(0, 2, StateKey(SCHEMA, "", "any"), json.dumps(text).encode())
    assert list(log.records(0, "newer")) == [GroupRecord("newer", 5, 1, "joined")]
