"""Logs of simulated runs: gold says what the replay says, however the log is cut; and after compaction nothing that it
says is false."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.gold.tables import GOLD, INVARIANTS
from tests.audit.gold.harness import Tables, as_set, differences, frame, gold, some_cuts
from tests.audit.gold.replay import Row, replay
from tests.audit.gold.rows import compacted, simulated

SEEDS = 8


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Each run in state partitions of its own, so that one fold does them all."""
    return [row for seed in range(SEEDS) for row in simulated(seed, 10 * seed)]


@pytest.fixture(scope="module")
def once(spark: SparkSession, rows: list[Row]) -> Tables:
    return gold(spark, rows)


def test_gold_says_what_the_replay_says(rows: list[Row], once: Tables) -> None:
    told = replay(rows)
    assert differences(once, told) == []
    for table in ("intervals", "unowned", "rebalances", "members", "outages", "static_member_history"):
        assert told[table], "the runs are about something"
    assert {r["kind"] for r in told["intervals"]} == {"consumer", "classic"}
    for r in once["intervals"] + once["members"]:
        assert r["from_exact"] and r["to_exact"] is not False and not r["unseen"], "nothing is missing"


def test_the_invariants_hold(spark: SparkSession, once: Tables) -> None:
    assert broken(spark, once) == []


def broken(spark: SparkSession, found: Tables) -> list[str]:
    """Names of the invariants that do not hold."""
    for name, table in GOLD.items():
        frame(spark, table, found[name]).createOrReplaceTempView(name)
    return [name for name, (_, query) in INVARIANTS.items() if spark.sql(query).limit(1).collect()]


def test_it_does_not_matter_how_the_log_is_cut(spark: SparkSession, rows: list[Row], once: Tables) -> None:
    cut = gold(spark, rows, some_cuts(random.Random(1), rows, 4))
    for name in GOLD:
        assert as_set(cut[name]) == as_set(once[name]), name


# ---- compaction ---------------------------------------------------------------------------------------------------
def place(r: Row) -> tuple[Any, ...]:
    return tuple(r[c] for c in ("state_partition", "group_id", "kind", "topic_key", "partition"))


def test_after_compaction_nothing_is_false(spark: SparkSession, rows: list[Row]) -> None:
    rng = random.Random(2)
    parts = sorted({r["state_partition"] for r in rows})
    left = [
        r
        for p in parts
        for r in compacted([r for r in rows if r["state_partition"] == p], rng, rng.choice((0.1, 0.5, 1.0)))
    ]
    assert len(left) < 0.8 * len(rows)
    found, told = gold(spark, left), replay(rows)
    truth = defaultdict(list)
    for r in told["intervals"]:
        truth[place(r), r["member_id"]].append(r)
    false = [f for r in found["intervals"] for f in untrue(r, truth[place(r), r["member_id"]])]
    assert false == []
    real = {(*place(r), r["offset"]) for r in told["overlaps"]}
    assert [r for r in found["overlaps"] if r["grade"] == "proven" and (*place(r), r["offset"]) not in real] == []
    free = {(*place(r), r["from_offset"], r["to_offset"]) for r in told["unowned"]}
    for r in found["unowned"]:
        if r["grade"] == "proven" and not r["open"]:
            assert (*place(r), r["from_offset"], r["to_offset"]) in free
    seen = defaultdict(set)
    for r in left:
        seen[r["state_partition"]].add(r["offset"])
    for r in found["coverage"]:
        if r["scope"] == "partition":
            there = seen[r["state_partition"]]
            holes = [n for n in range(max(there)) if n not in there]
            assert r["first_hole_offset"] == min(holes, default=None)
    assert set(broken(spark, found)) <= {"known_members"}, "a member's own record may be gone"


def untrue(r: Row, truth: list[Row]) -> list[str]:
    """Every interval has one in the full log that lies in its bounds: it began after the last offset at which it was
    not so, no later than its first record; and so for its end. With values missing inside there may be several."""
    first = [
        t for t in truth if t["from_offset"] <= r["from_offset"] and (t["open"] or t["to_offset"] > r["from_offset"])
    ]
    if len(first) != 1:
        return [f"nobody held it: {r} {truth}"]
    problems = []
    if r["from_not_before_offset"] is not None and first[0]["from_offset"] <= r["from_not_before_offset"]:
        problems.append(f"it began before: {r} {first}")
    if r["open"]:
        return problems
    if r["to_exact"] and r["to_offset"] not in {t["to_offset"] for t in truth}:
        problems.append(f"it did not end there: {r} {truth}")
    sure = r["to_not_before_offset"]
    if not any(t["from_offset"] <= sure and (t["open"] or t["to_offset"] > sure) for t in truth):
        problems.append(f"it had ended before: {r} {truth}")
    if any(t["from_offset"] <= r["to_offset"] and (t["open"] or t["to_offset"] > r["to_offset"]) for t in truth):
        problems.append(f"it had not ended: {r} {truth}")
    return problems
