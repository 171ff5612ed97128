"""Clients of share and streams groups in drills, and the findings of their judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.drill.artifacts import KAFKA
from sidecar.drill.clients import Client, missing
from sidecar.drill.drills.group_under_test import ShareGroupUnderTest, StreamsGroupUnderTest, group_under_test
from sidecar.drill.drills.judge import Verdict, judge_group
from sidecar.drill.drills.names import NAMES
from sidecar.drill.drills.playing import DRILLS, chosen, left_out, too_old
from sidecar.drill.kinds import ShareJournal, SinkReader, acknowledged_twice, bucket_of, runs
from sidecar.drill.processes import Process


def acknowledged(*offsets: int, success: bool = True, at: int = 1_000, partition: int = 0) -> dict[str, Any]:
    told = {"topic": "t", "partition": partition, "count": len(offsets), "offsets": list(offsets)}
    return {"timestamp": at, "name": "offsets_acknowledged", "success": success, "error": "no", "partitions": [told]}


def client(tmp_path: Path, name: str) -> Client:
    return Client(name, Process(name, ["true"], tmp_path / name), tmp_path / f"{name}.events")


# ---- share groups ---------------------------------------------------------------------------------------------------
@pytest.fixture
def share(tmp_path: Path) -> ShareGroupUnderTest:
    under_test = group_under_test("sidecar", "share", "g", "")
    assert isinstance(under_test, ShareGroupUnderTest)
    under_test.clients = [client(tmp_path, name) for name in ("a", "b")]
    for c in under_test.clients:
        c.journal = ShareJournal(c.name)
    return under_test


def test_runs_of_offsets() -> None:
    assert runs([3, 1, 2, 7]) == [(1, 3), (7, 7)] and runs([]) == []


def test_what_nobody_acknowledged_is_lost(share: ShareGroupUnderTest) -> None:
    a, b = (c.journal for c in share.clients)
    a.add({"timestamp": 1, "name": "records_consumed", "count": 5, "partitions": []})
    a.add(acknowledged(0, 1, 3))
    assert (a.count, share.lost({0: 4})) == (5, 1) and not share.consumed_all({0: 4})
    assert a.commit_log == [(1_000, 0, 4)] and not b.commit_log
    b.add(acknowledged(2))
    assert share.consumed_all({0: 4}) and missing({0: 5}, share.journals) == 1
    judge_group(share, {0: 4}, verdict := Verdict())
    assert verdict.ok


def test_what_was_delivered_is_not_lost_though_the_answer_to_its_acknowledgement_is(share: ShareGroupUnderTest) -> None:
    """Symptom: now and then the demo waited for records that the broker had, and did not deliver again. Their
    acknowledgement was under way when the owner was killed."""
    a, b = (c.journal for c in share.clients)
    a.add(acknowledged(0, 1, 3))
    b.add(acknowledged(2, success=False))
    assert share.consumed_all({0: 4}) and b.errors == ["no"] and not b.commit_log
    b.add(acknowledged(2))
    assert share.consumed_all({0: 4}) and acknowledged_twice(share.journals) == []


def test_what_is_acknowledged_again_was_delivered_again(share: ShareGroupUnderTest) -> None:
    a, b = (c.journal for c in share.clients)
    a.add(acknowledged(0, 1))
    b.add(acknowledged(1))
    assert acknowledged_twice(share.journals) == ["partition 0: 1 was acknowledged 2 times"]
    judge_group(share, {0: 2}, verdict := Verdict())
    assert verdict.backward_commits == 1 and not verdict.ok


# ---- streams groups -------------------------------------------------------------------------------------------------
@pytest.fixture
def streams(tmp_path: Path) -> Iterator[StreamsGroupUnderTest]:
    under_test = group_under_test("sidecar", "streams", "g", "")
    assert isinstance(under_test, StreamsGroupUnderTest)
    under_test.clients = [client(tmp_path, name) for name in ("a", "b")]
    under_test.reader = SinkReader("127.0.0.1:1", "t", "t-counts", 1)
    under_test.reader.journals = {c.name: c.journal for c in under_test.clients}
    under_test.reader.start()
    yield under_test
    under_test.close()


def test_counts_that_are_not_those_of_what_was_produced_are_lost(streams: StreamsGroupUnderTest) -> None:
    assert streams.reader is not None
    streams.reader.buckets = {0: ["x", "x", "z", "z"], 1: ["y"]}
    for offset, (bucket, value) in enumerate([("x", "1 a"), ("y", "1 b"), ("x", "2 b")]):
        streams.reader._note(bucket, value, 0, offset)
    a, b = (c.journal for c in streams.clients)
    assert [offset for _, _, offset in a.commit_log] == [1] and [offset for _, _, offset in b.commit_log] == [2, 3]
    assert streams.balanced() and streams.consumed_all({0: 2, 1: 1})
    assert streams.lost({0: 4, 1: 1}) == 2 and streams.lost({0: 2}) == 1, "too few, and too many"
    assert streams.lost({0: 2, 1: 3}) == 2, "the source was not read so far"
    judge_group(streams, {0: 2, 1: 1}, verdict := Verdict())
    assert verdict.ok


def test_buckets_are_those_of_the_application() -> None:
    """As `Math.floorMod(order.hashCode(), 200)` of Java, whose hash codes may be negative."""
    orders = ("order 12", "order 1", "order 1234567")
    assert [bucket_of(order) for order in orders] == ["bucket-11", "bucket-87", "bucket-106"]


@pytest.mark.parametrize("value", ["1 b", "3 b"])
def test_a_count_out_of_turn_is_found(streams: StreamsGroupUnderTest, value: str) -> None:
    assert streams.reader is not None
    streams.reader.buckets = {0: ["x"] * 3}
    streams.reader._note("x", "1 a", 0, 0)
    streams.reader._note("x", value, 0, 1)
    judge_group(streams, {0: int(value[0])}, verdict := Verdict())
    assert verdict.lost_records == 0 and verdict.backward_commits == 1


# ---- drills ---------------------------------------------------------------------------------------------------------
def test_a_drill_has_the_kinds_of_its_class() -> None:
    """Symptom: every drill was played with consumer and classic groups."""
    for made in chosen(list(NAMES), {}):
        assert (made.kinds, made.since) == (type(made).kinds, type(made).since)
    assert {kind for d in DRILLS for kind in d.kinds} == {"share", "streams"}


def test_drills_of_kinds_that_older_brokers_do_not_have() -> None:
    share, streams = chosen(["kill-share-owner", "kill-streams-owner"], {})
    assert [too_old(share, v) for v in ("3.9.1", "4.0.0", "4.3.1")] == [True, True, False]
    assert [too_old(streams, v) for v in ("3.7.2", "3.9.1", KAFKA)] == [True, False, False]
    assert "kill-share-owner" in left_out(["all"], "4.0.0") and not left_out(["stop"], "4.0.0")
    assert share.name not in {d.name for d in chosen(["all"], {}, "4.0.0")}
