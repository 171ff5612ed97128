"""Records that cannot be read, and numbers that cannot be computed with. What gold then says is not certain, and it is
the same however the log is cut."""

from __future__ import annotations

import random
from itertools import product

from sidecar.audit.moments import LAST_MS
from sidecar.audit.tables.gold import GOLD
from tests.audit.gold.harness import as_set, gold, some_cuts
from tests.audit.gold.rows import Log

MAX = (1 << 63) - 1


def consumer(log: Log, member: str, epoch: int, *held: int) -> None:
    log.current("g", member, epoch, held)


def classic(log: Log, member: str, epoch: int, *held: int) -> None:
    """A static member that came back is given the assignment of the generation, at once."""
    if not any(r["table"] == "classic_groups" for r in log.rows):
        log.classic("g", "Stable", 9, 9)
    log.assign("g", member, epoch, held)


def streams(log: Log, member: str, epoch: int, *held: int) -> None:
    log.streams_member("g", member, member)
    log.streams_current("g", member, epoch, active=held)


KINDS = {"current": consumer, "classic_assignment": classic, "streams_current": streams}
OWNERS = {
    "m1 m1? m2": ["possible"],
    "m1 m1? m1 m2": ["proven"],
    "m1 m2? m2": ["proven"],
    "m1 m3? m2": ["proven"],
}
"""Records of members -> grades of the second owners. `m1`: it gets the partition; `m1-`: it gives it up; `m1?`: its
record cannot be read."""
UNOWNED = {
    "m1 m1- m1": ["proven"],
    "m1 m1- m2? m1": ["possible"],
    "m1 m1- m1 m2?": ["proven"],
}
"""The same of the times when nobody had it."""


def written(kind: str, steps: str, partition: int) -> Log:
    log = Log(partition)
    log.claim(1)
    for n, step in enumerate(steps.split()):
        if step[-1] == "?":
            log.unreadable(kind, "g", step[:-1])
        else:
            KINDS[kind](log, step[:2], n + 1, *([] if step[-1] == "-" else [0]))
    return log


def test_what_an_unreadable_record_may_have_said_is_not_proven() -> None:
    """Symptoms: a second owner was proven, and the first had only one record that nobody could read; and that nobody
    had a partition, which such a record may have given to a member."""
    cases = [(kind, steps) for kind in KINDS for steps in (*OWNERS, *UNOWNED)]
    rows = [r for p, (kind, steps) in enumerate(cases) for r in written(kind, steps, p).rows]
    found = gold(rows)
    for p, (kind, steps) in enumerate(cases):
        for table, told in (("second_owners", OWNERS), ("unowned", UNOWNED)):
            grades = [r["grade"] for r in found[table] if r["state_partition"] == p]
            assert grades == told.get(steps, grades), (kind, steps, table)
    cut = gold(rows, some_cuts(random.Random(1), rows, 2))
    for name in GOLD:
        assert as_set(cut.get(name, [])) == as_set(found.get(name, [])), name


def test_only_the_group_itself_is_in_doubt() -> None:
    """Checks also a log whose unreadable record comes in the batch before."""
    whole, cut = Log(0), Log(1)
    for log in (whole, cut):
        log.claim(1)
        for group in ("g", "h"):
            log.group(group, 1)
            log.member(group, "m1")
            log.current(group, "m1", 1, [0])
        log.unreadable("member", "g", "m2")
        log.unreadable("a kind of a newer version", "h", "m1")
        log.unreadable(None, None, None)
        for group in ("g", "h"):
            log.group(group, 2)
            log.current(group, "m1", 2, [])
            log.current(group, "m1", 2, [0])
    found = gold([*whole.rows, *cut.rows], [{cut.partition: 9}])
    for log in (whole, cut):
        for table in ("rebalances", "unowned"):
            rows = [r for r in found[table] if r["state_partition"] == log.partition]
            last = {r["group_id"]: r["grade"] for r in sorted(rows, key=lambda r: r["from_offset"])}
            assert last == {"g": "possible", "h": "proven"}, (table, log.partition)


def test_any_number_in_a_record_can_be_told() -> None:
    """Symptom: DuckDB's numbers overflowed, and gold stayed where it was for ever."""
    numbers, which = (MAX, -MAX - 1, 1 << 60, -1), (slice(0, 4), slice(4, None), slice(None))
    cases = list(product(("log_ms", "written_ms", "revision"), numbers, which))
    rows = []
    for p, (column, number, some) in enumerate(cases):
        log = Log(p)
        log.claim(1)
        log.group("g", 1)
        log.member("g", "m1")
        log.current("g", "m1", 1, [0])
        log.group("g", 2)
        log.current("g", "m1", 2, [])
        log.claim(2)
        log.current("g", "m1", 2, [0])
        rows += [r | ({column: number} if r in log.rows[some] else {}) for r in log.rows]
    found = gold(rows)
    assert {r["state_partition"] for r in found["intervals"]} == set(range(len(cases)))
    assert all(0 <= r["from_ms"] <= LAST_MS for r in found["intervals"])


def test_a_setting_of_a_streams_group_may_be_any_text() -> None:
    values, rows = ("2", "x", "", "99999999999"), []
    for partition, value in enumerate(values):
        log = Log(partition)
        log.claim(1)
        configs = [{"name": "num.standby.replicas", "value": value}]
        log.put("streams_group", "a", epoch=1, validated_topology_epoch=1, assignment_configs=configs)
        part = {"subtopology": "0", "repartition_source_topics": [], "changelog_topics": [{"name": "c"}]}
        log.put("streams_topology", "a", epoch=1, partial=False, subtopologies=[part])
        streams(log, "m1", 1, 0)
        rows += log.rows
    found = gold(rows)["streams_standby_replicas"]
    assert [(r["state_partition"], r["num_standby_replicas"]) for r in found] == [(0, 2)]
