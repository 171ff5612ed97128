"""Logs that are not read from their begin, or of which a part was lost before it was read: nothing that gold says of
them is false."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from tests.audit.gold.harness import Tables, as_set, gold
from tests.audit.gold.replay import Row, replay
from tests.audit.gold.rows import Log, logs_of_run
from tests.audit.gold.test_random import HELD, STATEMENTS, contradictions, place

pytestmark = pytest.mark.tier("test")  # 24 logs, each read late, in part and compacted

SEEDS = 16
LATE, LOST = "late", "lost"
UNSEEN = ("share_coverage", "share_initialised", "holders", "streams_standby_coverage")
OF_NEW_GROUPS = ("rebalances", "unowned")
"""Behind what was never read, they are proven only of a group that began there, and few do."""
Unread = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def full() -> list[Row]:
    """Returns the logs that can be read in part: those of more than one record."""
    rows = logs_of_run(SEEDS)
    records = Counter(row["state_partition"] for row in rows)
    return [row for row in rows if records[row["state_partition"]] > 1]


def never_read(rows: list[Row], how: str) -> Unread:
    rng, sizes = random.Random(0), defaultdict(int)
    for r in rows:
        sizes[r["state_partition"]] = r["offset"] + 1
    found = {}
    for p, size in sizes.items():
        a, b = sorted((rng.randrange(1, size), rng.randrange(1, size)))
        found[p] = (0, b) if how == LATE else (a, b + 1)
    return found


def left_of(rows: list[Row], unread: Unread) -> list[Row]:
    """With the claims that are known to whoever reads the rest."""
    left: list[Row] = []
    claims: dict[int, int | None] = {}
    for r in rows:
        p, (a, b) = r["state_partition"], unread[r["state_partition"]]
        if r["offset"] == b:
            claims[p] = None
        if not a <= r["offset"] < b:
            left.append({**r, "claimed_epoch": claims.get(p)})
            if r["table"] == "claims" and not r["deleted"]:
                claims[p] = r["owner_epoch"]
    return left


def read(full: list[Row], how: str) -> tuple[list[Row], Tables]:
    unread = never_read(full, how)
    left = left_of(full, unread)
    ends = [{p: a for p, (a, _) in unread.items()}]
    return left, gold(left, ends, [{}, unread])


@pytest.mark.parametrize("how", [LATE, LOST])
def test_what_was_never_read_makes_nothing_false(full: list[Row], how: str) -> None:
    told, (left, found) = replay(full), read(full, how)
    assert len(left) < 0.9 * len(full)
    unread = never_read(full, how)
    for table, named in HELD.items():
        truth = defaultdict(list)
        for r in told[table]:
            truth[tuple(r[c] for c in named)].append(r)
        closed = [r for r in found[table] if not r["open"] or r["from_offset"] >= unread[r["state_partition"]][1]]
        assert [f for r in closed for f in contradictions(r, truth[tuple(r[c] for c in named)])] == [], table
    real = {(*place(r), r["offset"]) for r in told["second_owners"]}
    assert [r for r in found["second_owners"] if r["grade"] == "proven" and (*place(r), r["offset"]) not in real] == []
    for table, columns in STATEMENTS.items():
        proven = [r for r in found[table] if r["grade"] == "proven"]
        none = how == LATE and table in UNSEEN  # there may be holders of whom nothing is seen
        silent = how == LATE and table == "streams_standby_coverage"  # the topology was written before
        assert bool(proven) != none or (how == LATE and table in OF_NEW_GROUPS), table
        assert len(proven) < len(found[table]) or (silent and not found[table]), table
        assert as_set(proven, columns) - as_set(told[table], columns) == set(), table
    written = {(r["state_partition"], r["offset"]) for r in told["stale_writes"]}
    assert {(r["state_partition"], r["offset"]) for r in found["stale_writes"]} <= written
    assert not [r for r in found["rebalances"] if r["went_back"]]
    for r in found["coverage"]:
        a, b = unread[r["state_partition"]]
        assert (r["read_from_offset"], r["lost"], r["without_record"]) == ((b, 0, 0) if how == LATE else (0, b - a, 0))


def test_a_group_that_began_later_is_proven_and_one_that_was_there_before_is_not() -> None:
    log = Log()
    log.claim(1)
    log.member("old", "m1")
    log.group("old", 1)
    log.forget()
    for group in ("old", "new"):
        log.member(group, "m2", written_ms=2_000)
        log.group(group, 2 if group == "old" else 1, written_ms=2_000)
        log.member(group, "m2", written_ms=3_000)
        log.group(group, 3, written_ms=3_000)
    log.member("old", "m2", written_ms=4_000)
    log.group("old", 4, written_ms=4_000)
    for group in ("old", "new"):
        log.current(group, "m2", 4, [0])
        log.current(group, "m2", 4, [])
    log.rows[0]["written_ms"] = 1_500
    found = gold(log.rows, unread=[{0: (0, 3)}])
    graded = {(r["group_id"], r["epoch"]): r["grade"] for r in found["rebalances"]}
    assert (graded["old", 4], graded["new", 3]) == ("possible", "proven")
    assert {r["group_id"]: r["grade"] for r in found["unowned"]} == {"old": "possible", "new": "proven"}


def without(log: Log, first: int, last: int) -> Tables:
    """Returns gold of the log, of which these offsets were gone before they were read."""
    left = [r for r in log.rows if not first <= r["offset"] <= last]
    return gold(left, [{0: first}], [{}, {0: (first, last + 1)}])


def test_an_assignment_whose_generation_was_completed_in_what_was_lost_does_not_count() -> None:
    """m2 then has what m1 had, which may not be known. That nobody had it when m1 left is no more than possible."""
    log = Log()
    log.claim(1)
    log.classic("g", "CompletingRebalance", 1, 0)
    log.assign("g", "m1", 1, [0])
    log.classic("g", "Stable", 1, 1)
    log.assign("g", "m1", 2, [])
    log.assign("g", "m2", 2, [0])
    lost = log.classic("g", "Stable", 2, 2)["offset"]
    for _ in range(3):
        log.classic("g", "PreparingRebalance", 2, 2)
    log.put("classic_assignment", "g", "m1", gone=True)
    log.put("classic_assignment", "g", "m2", gone=True)
    log.assign("g", "m3", 3, [0])
    log.classic("g", "Stable", 3, 3)
    found = without(log, lost, lost)
    assert [r["member_id"] for r in found["intervals"]] == ["m1", "m3"]
    assert [(r["former_member_id"], r["grade"]) for r in found["unowned"]] == [("m1", "possible")]


def test_a_group_that_began_anew_in_what_was_lost_has_other_generations() -> None:
    """Symptom: the first assignment counted before its generation was complete, as that of the former group was."""
    log = Log()
    log.claim(1)
    log.classic("g", "Stable", 3, 3)
    first = log.put("classic_group", "g", gone=True)["offset"]
    last = log.classic("g", "CompletingRebalance", 1, 0)["offset"]
    log.assign("g", "m1", 1, [0])
    complete = log.classic("g", "Stable", 1, 1)["offset"]
    assert [r["from_offset"] for r in without(log, first, last)["intervals"]] == [complete]


def test_who_left_in_what_was_lost_is_no_second_owner_for_certain() -> None:
    log = Log()
    log.claim(1)
    for m in ("m1", "m2"):
        log.member("g", m)
    log.current("g", "m1", 1, [0])
    log.leave("g", "m1")
    log.current("g", "m2", 2, [0])
    found = without(log, 4, 6)
    assert [(r["member_id"], r["grade"]) for r in found["second_owners"]] == [("m2", "possible")]
    left = [r for r in log.rows if not 4 <= r["offset"] <= 6]
    assert [r["grade"] for r in gold(left)["second_owners"]] == ["proven"], "nobody said what was lost"
