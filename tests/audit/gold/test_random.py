"""Logs of simulated runs: gold says what the replay says, however the log is cut; and after compaction nothing that it
says is false."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import duckdb
import pytest

from sidecar.audit.tables.gold import GOLD, INVARIANTS
from tests.audit.gold.harness import Tables, as_set, differences, gold, rows_of, some_cuts
from tests.audit.gold.replay import Row, replay
from tests.audit.gold.rows import Log, compacted, logs_of_run, spaced

pytestmark = pytest.mark.tier("test")  # many logs, each folded many times

SEEDS = 24
COMPACTED = 10_000
"""Added to the numbers of state partitions whose log was compacted."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Each run in state partitions of its own, so that one fold does them all."""
    return logs_of_run(SEEDS)


@pytest.fixture(scope="module")
def full(rows: list[Row]) -> list[Row]:
    """The same with transactions, in state partitions of their own."""
    rng, made = random.Random(3), []
    for p in sorted({r["state_partition"] for r in rows}):
        mine = [{**r, "state_partition": p + COMPACTED} for r in rows if r["state_partition"] == p]
        made += spaced(mine, rng)
    return made


@pytest.fixture(scope="module")
def left(full: list[Row]) -> list[Row]:
    """The rows that compaction leaves."""
    rng, made = random.Random(2), []
    for p in sorted({r["state_partition"] for r in full}):
        made += compacted([r for r in full if r["state_partition"] == p], rng)
    assert len(made) < 0.8 * len(full)
    return made


def only(found: Tables, was_compacted: bool) -> Tables:
    return {t: [r for r in rs if (r["state_partition"] >= COMPACTED) == was_compacted] for t, rs in found.items()}


@pytest.fixture(scope="module")
def everything(rows: list[Row], left: list[Row]) -> Tables:
    return gold(rows + left)


@pytest.fixture(scope="module")
def once(everything: Tables) -> Tables:
    return only(everything, False)


def test_gold_says_what_the_replay_says(rows: list[Row], once: Tables) -> None:
    told = replay(rows)
    assert differences(once, told) == []
    for table in (*HELD, *STATEMENTS, "members", "outages", "static_member_history", *OTHERS):
        assert told[table], "the runs are about something"
    assert {r["kind"] for r in told["intervals"]} == {"consumer", "classic"}
    assert {r["kind"] for r in told["rebalances"]} == {"consumer", "classic", "share", "streams"}
    assert {r["role"] for r in told["streams_tasks"]} == {"active", "standby"}
    for r in [r for table in (*HELD, "members") for r in once[table]]:
        assert r["from_exact"] and r["to_exact"] is not False and not r["unseen"], "nothing is missing"


def test_the_invariants_hold(once: Tables) -> None:
    assert broken(once) == []


def broken(found: Tables) -> list[str]:
    """Names of the invariants that do not hold."""
    with duckdb.connect() as db:
        for name, table in GOLD.items():
            db.register(name, rows_of(table, found.get(name, [])))
        counted = "select count(*) from ({})".format
        queries = {name: counted(query.replace("left anti", "anti")) for name, (_, query) in INVARIANTS.items()}
        return [name for name, query in queries.items() if db.execute(query).fetchall() != [(0,)]]


def test_it_does_not_matter_how_the_log_is_cut(rows: list[Row], left: list[Row], everything: Tables) -> None:
    cut = gold(rows + left, some_cuts(random.Random(1), rows + left, 4))
    for name in GOLD:
        assert as_set(cut.get(name, [])) == as_set(everything.get(name, [])), name


def test_a_group_that_begins_anew_is_given_all_that_its_target_has() -> None:
    """Symptoms: what the same member had in the target that was removed did not count, so gold said something else
    where that target was not read; and if it was removed in a batch of its own, the grade was only possible."""
    log = Log()
    log.group("g", 1)
    log.forget()
    for epoch in (2, 3, 4, 5):
        log.group("g", epoch)
    log.target("g", 5, m1=[0])
    log.put("target_member", "g", "m1", gone=True)
    log.put("target_metadata", "g", gone=True)
    removed = log.put("group", "g", gone=True)["offset"]
    log.member("g", "m1")
    log.group("g", 1)
    log.group("g", 2)
    log.target("g", 2, m1=[0, 1])
    log.current("g", "m1", 2, [0, 1])
    once, cut = (gold(log.rows, ends)["rebalances"] for ends in (None, [{0: removed - 2}, {0: removed + 1}]))
    assert as_set(once) == as_set(cut)
    assert [(r["grade"], r["partitions_moved"]) for r in once if r["settled_offset"]] == [("proven", 2)]


def test_a_subscription_that_has_ended_proves_nothing_of_what_is_initialised_later() -> None:
    """Symptom: where it ended in an earlier batch it did not count, and so the grade depended on the cut."""
    log = Log()
    log.share_member("g", "m1")
    log.forget()
    for _ in range(4):
        log.share_member("g", "m1")
    for _ in range(4):
        ended = log.share_member("g", "m1", "other")["offset"]
    log.placeholder("g", [0])
    once, cut = (gold(log.rows, ends)["share_initialised"] for ends in (None, [{0: ended + 1}]))
    assert as_set(once) == as_set(cut) != set()


# ---- compaction ---------------------------------------------------------------------------------------------------
PLACE = ("state_partition", "group_id", "kind", "topic_key", "partition")


def place(r: Row) -> tuple[Any, ...]:
    return tuple(r[c] for c in PLACE)


def test_after_compaction_nothing_is_false(full: list[Row], left: list[Row], everything: Tables) -> None:
    found, told = only(everything, True), replay(full)
    for table, named in HELD.items():
        truth = defaultdict(list)
        for r in told[table]:
            truth[tuple(r[c] for c in named)].append(r)
        assert [f for r in found[table] for f in contradictions(r, truth[tuple(r[c] for c in named)])] == [], table
    real = {(*place(r), r["offset"]) for r in told["second_owners"]}
    assert [r for r in found["second_owners"] if r["grade"] == "proven" and (*place(r), r["offset"]) not in real] == []
    for table, columns in STATEMENTS.items():
        proven = [r for r in found[table] if r["grade"] == "proven"]
        assert proven and len(proven) < len(found[table])
        assert as_set(proven, columns) - as_set(told[table], columns) == set(), table
    gone = {"known_members", "known_members_share_holdings", "known_members_streams_tasks"}
    assert set(broken(found)) <= gone, "a member's own record may be gone"


OTHERS = (
    *("streams_not_ready", "streams_standby_replicas", "streams_topology_changes"),
    *("share_placeholder_history", "share_initialised", "holders", "streams_standby_coverage"),
)
SHARED = ("state_partition", "group_id", "topic_id", "partition")
HELD = {
    "intervals": (*PLACE, "member_id"),
    "share_holdings": (*SHARED, "member_id"),
    "streams_tasks": ("state_partition", "group_id", "subtopology", "partition", "role", "member_id"),
}
"""Tables of what members have, and what names it."""
STATEMENTS = {
    "unowned": [*PLACE, "former_member_id", "from_offset", "member_id", "to_offset"],
    "share_coverage": [*SHARED, "former_member_id", "from_offset", "member_id", "to_offset"],
    "holders": [*PLACE, "role", "holders", "from_offset", "to_offset"],
    "streams_standby_coverage": [
        *("state_partition", "group_id", "subtopology", "partition", "wanted", "held", "from_offset", "to_offset"),
    ],
    "share_initialised": [*SHARED, "subscribed_offset", "offset"],
    "rebalances": [
        *("state_partition", "group_id", "kind", "epoch", "from_offset", "members", "target_offset"),
        *("partitions_moved", "settled_offset", "superseded", "open"),
    ],
}
"""Statements about absence are compared too: a partition had no owner, all members had come."""


def test_coverage_says_what_is_missing(left: list[Row], everything: Tables) -> None:
    seen = defaultdict(set)
    for r in left:
        seen[r["state_partition"]].add(r["offset"])
    covered = [r for r in only(everything, True)["coverage"] if r["scope"] == "partition"]
    assert {r["state_partition"] for r in covered} == set(seen)
    for r in covered:
        there = seen[r["state_partition"]]
        assert r["first_hole_offset"] == next((n for n in range(max(there)) if n not in there), None)
        since = r["whole_from_offset"]
        assert since is None or since == 0 or since in there
    assert sum(r["whole_from_offset"] is not None for r in covered) > len(covered) / 2


def contradictions(r: Row, truth: list[Row]) -> list[str]:
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
