"""`sidecar history` and `sidecar owner` fold the records of one group in Python (sidecar/audit/history/fold.py).

Gold folds those of all in SQL: both say the same of intervals and second owners, also where records are missing."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Any

import pytest

from sidecar.audit.history.fold import Fold, Interval, Overlap
from sidecar.core.classic.embedded import assignment
from tests.audit.gold.harness import Tables, frozen, gold
from tests.audit.gold.replay import Row, replay
from tests.audit.gold.rows import Log, compacted, key_of, simulated, spaced
from tests.audit.gold.test_random import PLACE, contradictions
from tests.audit.gold.test_random import place as place_of
from tests.harness.tiers import seeds_of_run

pytestmark = pytest.mark.tier("test")  # 160 logs by two ways

SEEDS = 16
FIRST_WILD, WILD = 1_000_000, 9 * SEEDS
"""Small logs that no coordinator would write: a few ms each."""
STEPS = 40
CONSUMER = "id of "
"""Before the topic ids of consumer groups: classic groups know topics by their names."""
DOUBTED = ("from_exact", "from_not_before_offset", "to_exact", "to_not_before_offset")


# ---- rows of silver as sidecar.audit.history.topic gives them -------------------------------------------------------
def _places(items: list[Row] | None) -> list[Row]:
    return [
        {"topic_id": (CONSUMER + t["topic_id"]).encode(), "topic_name": t["topic"], "partitions": t["partitions"]}
        for t in items or ()
    ]


def _given(row: Row) -> bytes:
    return assignment(1, [(t["topic"], tuple(t["partitions"])) for t in row["assigned"] or ()])


BODIES: dict[str, Callable[[Row], Row]] = {
    "member": lambda r: {"client_id": r["client_id"]},
    "classic_member": lambda r: {"client_id": r["client_id"]},
    "current": lambda r: {"member_epoch": r["member_epoch"]} | {n: _places(r[n]) for n in ("assigned", "pending")},
    "classic_group": lambda r: {n: r[n] for n in ("protocol_type", "assigned_generation")},
    "classic_assignment": lambda r: {"generation": r["generation"], "assignment": _given(r)},
}


def as_read(row: Row) -> Row:
    _, kind, group_id, sub_id = key_of(row)
    body = None if row["deleted"] else BODIES[kind](row) if kind in BODIES else {}
    said = {"kind": kind, "group_id": group_id, "sub_id": sub_id}
    said |= {n: row[n] for n in ("offset", "owner_epoch", "revision", "why")}
    return said | {"time_ms": row["log_ms"], "body": body}


def place(group: tuple[int, str], i: Interval) -> Row:
    """Returns the columns that intervals and second owners share. `group`: its state partition, and its id."""
    key, kind = i.key[0], "classic"
    if key.startswith(CONSUMER.encode().hex()):
        key, kind = bytes.fromhex(key).decode().removeprefix(CONSUMER), "consumer"
    columns = {"state_partition": group[0], "group_id": group[1], "partition": i.partition}
    return columns | {"kind": kind, "topic_key": key}


def interval(group: tuple[int, str], i: Interval) -> Row:
    ended = i.to_offset is not None
    begin = {"from_offset": i.from_offset, "from_ms": i.from_ms, "from_why": i.from_why, "from_exact": i.exact}
    end = {"to_offset": i.to_offset, "to_ms": i.to_ms, "to_why": i.to_why, "to_exact": i.to_exact if ended else None}
    bounds = {"from_not_before_offset": i.not_before, "to_not_before_offset": i.stretches[-1].until if ended else None}
    return place(group, i) | {"member_id": i.member_id, "first_epoch": i.member_epoch} | begin | end | bounds


def second_owner(group: tuple[int, str], o: Overlap) -> Row:
    members = {"member_id": o.second.member_id, "other_member_id": o.first}
    at = {"offset": o.offset, "ms": o.time_ms, "grade": "proven" if o.proven else "possible"}
    return place(group, o.second) | members | at


def by_fold(rows: list[Row]) -> Tables:
    """Returns the fold's results under gold's column names."""
    folds: dict[tuple[int, str], Fold] = {(r["state_partition"], r["group_id"]): Fold() for r in rows}
    of_partition = defaultdict(list)
    for group in folds:
        of_partition[group[0]].append(group)
    for row in rows:
        read = as_read(row)
        group = row["state_partition"], read["group_id"]
        for one in [group] if group[1] else of_partition[group[0]]:
            folds[one].add(read)
    return {
        "intervals": [interval(group, i) for group, one in folds.items() for i in one.intervals],
        "second_owners": [second_owner(group, o) for group, one in folds.items() for o in one.overlaps],
    }


def differences(found: list[Row], expected: list[Row], without: Collection[str] = (), most: int = 4) -> list[str]:
    columns = [c for c in expected[0] if c not in without]
    gold_rows, fold_rows = (Counter(frozen({c: r[c] for c in columns}) for r in rs) for rs in (found, expected))
    out = [f"only in gold: {dict(x)}" for x in sorted(gold_rows - fold_rows, key=repr)[:most]]
    return out + [f"only in the fold: {dict(x)}" for x in sorted(fold_rows - gold_rows, key=repr)[:most]]


# ---- logs -----------------------------------------------------------------------------------------------------------
def torn(rows: list[Row], rng: random.Random) -> list[Row]:
    """As a lake has them that was not read often enough: any value may be missing but the last of its key."""
    stays = rng.choice((0.9, 0.7))
    last = {key_of(r): r["offset"] for r in rows if r["owner_epoch"] == r["claimed_epoch"]}
    return [r for r in rows if r["deleted"] or last.get(key_of(r), r["offset"]) == r["offset"] or rng.random() < stays]


def wild(log: Log, rng: random.Random) -> None:
    """Members of one group, each with whatever it likes, at any time."""
    log.claim(1)
    members, generation = ("m1", "m2", "m3"), 0

    def some() -> list[int]:
        return rng.sample(range(3), rng.choice((0, 1, 1, 2)))

    def consumer(m: str) -> None:
        log.current("g", m, rng.randrange(1, 4), some(), some())

    def classic(m: str) -> None:
        log.assign("c", m, generation + rng.choice((0, 1)), some())

    def round_(m: str) -> None:
        nonlocal generation
        generation += rng.choice((0, 1))
        log.classic("c", rng.choice(("Stable", "PreparingRebalance")), generation, generation)

    def over(m: str) -> None:
        nonlocal generation
        log.put("classic_group", "c", gone=True)
        generation = 0

    steps: list[tuple[int, Callable[[str], Any]]] = [
        (8, consumer),
        (1, lambda m: log.leave("g", m)),
        (1, lambda m: log.member("g", m)),
        (8, classic),
        (5, round_),
        (1, lambda m: log.joins("c", m)),
        (1, lambda m: log.put("classic_assignment", "c", m, gone=True)),
        (1, over),
        (1, lambda m: log.current("g", m, 9, some(), owner_epoch=log.epoch + 1)),
        (1, lambda m: log.claim(log.epoch + 1)),
    ]
    for step in rng.choices([s for _, s in steps], [w for w, _ in steps], k=STEPS):
        step(rng.choice(members))


WHOLE, SPACED, COMPACTED, TORN = range(4)
CHANGES = (lambda rows, rng: rows, spaced, compacted, torn)


def change_of(row: Row) -> int:
    return int(row["state_partition"]) % len(CHANGES)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Returns rows of simulated runs and of wild ones, each whole, with transactions, compacted, and torn: in state
    partitions of their own."""
    whole = [row for n, seed in enumerate(seeds_of_run(SEEDS)) for row in simulated(seed, 10 * n)]
    for n, seed in enumerate(seeds_of_run(WILD)):
        log = Log(FIRST_WILD + n)
        wild(log, random.Random(seed))
        whole += log.rows
    rng, made = random.Random(4), []
    for p in sorted({r["state_partition"] for r in whole}):
        mine = [r for r in whole if r["state_partition"] == p]
        for n, change in enumerate(CHANGES):
            made += [{**r, "state_partition": len(CHANGES) * p + n} for r in change(mine, rng)]
    return made


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> Tables:
    return gold(rows)


@pytest.fixture(scope="module")
def fold_tables(rows: list[Row]) -> Tables:
    return by_fold(rows)


@pytest.mark.parametrize("table", ["intervals", "second_owners"])
def test_both_say_the_same(table: str, found: Tables, fold_tables: Tables) -> None:
    """Both agree on consumer groups whatever is missing, and on classic groups if nothing is missing."""

    def some(of: Tables) -> list[Row]:
        return [r for r in of[table] if r["kind"] == "consumer" or change_of(r) == WHOLE]

    assert differences(some(found), some(fold_tables)) == []
    if table == "second_owners":
        counted = Counter((r["kind"], change_of(r), r["grade"]) for r in some(fold_tables))
        assert min(counted["consumer", n, "proven"] for n in range(len(CHANGES))) > 100, counted
        assert counted["consumer", TORN, "possible"] > 50 and counted["classic", WHOLE, "proven"] > 100, counted


def test_of_a_classic_group_gold_doubts_more(found: Tables, fold_tables: Tables) -> None:
    """docs/use/audit.md, "What can be known": from whose record on an assignment counts, and whether it still did when
    the group went, is certain for gold only where the whole state partition is there."""
    mine, theirs = ([r for r in of["intervals"] if r["kind"] == "classic"] for of in (found, fold_tables))
    assert differences(mine, theirs, DOUBTED) == []
    known, doubted = {same_key(r, "from_offset"): r for r in theirs}, 0
    for r in mine:
        fold = known[same_key(r, "from_offset")]
        for end in ("from_exact", "to_exact"):
            assert fold[end] or not r[end]
            doubted += bool(fold[end]) and not r[end]
    assert doubted > 100
    grades = [{same_key(r, "offset"): r["grade"] for r in of["second_owners"]} for of in (fold_tables, found)]
    both = Counter((grades[0][key], grade) for key, grade in grades[1].items() if key in grades[0])
    assert both["proven", "possible"] > 20 and not both["possible", "proven"], both


def same_key(r: Row, offset: str) -> tuple[Any, ...]:
    return tuple(r[c] for c in (*PLACE, "member_id", offset))


def test_of_a_tombstone_that_does_not_count_values_gold_knows_more() -> None:
    """The tombstone is of a member's own record while its current assignment has none, or an older version wrote it.
    Both are certain if the whole state partition is there, which only a lake knows."""
    rows = []
    for p, kind in enumerate(("member", "current")):
        log = Log(p)
        log.claim(1)
        log.member("g", "m1")
        log.current("g", "m1", 1, [0])
        log.put(kind, "g", "m1", gone=True, revision=None)
        rows += log.rows
    exact = [
        {r["state_partition"]: r["to_exact"] for r in of["intervals"] if r["to_offset"] is not None}
        for of in (gold(rows), by_fold(rows))
    ]
    assert exact == [{0: True, 1: True}, {0: False, 1: False}]
    assert differences(gold(rows)["intervals"], by_fold(rows)["intervals"], DOUBTED) == []


def test_what_the_fold_says_of_a_compacted_topic_is_true(rows: list[Row], fold_tables: Tables) -> None:
    """The fold contradicts nothing that a coordinator has written, whatever compaction left of it."""
    truth = defaultdict(list)
    for r in replay([r for r in rows if change_of(r) == WHOLE and r["state_partition"] < FIRST_WILD * len(CHANGES)])[
        "intervals"
    ]:
        truth[(*place_of(r), r["member_id"])].append(r)
    false = []
    for r in fold_tables["intervals"]:
        if change_of(r) == COMPACTED and r["state_partition"] < FIRST_WILD * len(CHANGES):
            there = {**r, "state_partition": r["state_partition"] - COMPACTED, "open": r["to_offset"] is None}
            false += contradictions(there, truth[(*place_of(there), r["member_id"])])
    assert false == [] and len(truth) > 100
