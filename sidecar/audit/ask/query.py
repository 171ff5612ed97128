"""Questions to the gold of a lake, answered by DuckDB: no Spark, no Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from sidecar.audit.ask.runs import RUNS, runs
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.gold import GOLD, INVARIANTS, once
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

MOMENTS = {
    name
    for table in (BRONZE, *SILVER_TABLES.values(), *GOLD.values(), RUNS)
    for name in table.names
    if name.endswith("ms") and f"{name.removesuffix('ms')}time" in table.names
}
"""Columns of Unix ms that are moments. What else ends in _ms is a duration."""
Rows = list[dict[str, Any]]
ZONED = "TIMESTAMP WITH TIME ZONE"
WAIT_S = 30.0
"""For a writer that brings gold's tables up to date, which takes it a second or so."""
Read = TypeVar("Read")

HELD = """
    from intervals
    union all by name select *, 'share' as kind, topic_id as topic_key from share_holdings
    union all by name select *, 'streams' as kind, subtopology as topic_key,
        'task ' || subtopology || case role when 'active' then '' else ' ' || role end as topic from streams_tasks
"""
"""Intervals of all kinds of groups: the table's, holdings of share groups, and tasks, whose topic names the role."""
SECOND_OWNERS = """
    with alone as (
        select state_partition, group_id, topic_key, partition, member_id, from_offset, to_ms from intervals
        union all select state_partition, group_id, subtopology, partition, member_id, from_offset, to_ms
            from streams_tasks where role = 'active'
    )
    select s.*, coalesce(least(a.to_ms, other_to_ms), case when not open then ms end) as to_ms
    from second_owners s
    left join alone a using (state_partition, group_id, topic_key, partition, member_id, from_offset)
    left join (select * rename (member_id as other_member_id, from_offset as other_from_offset, to_ms as other_to_ms)
        from alone) using (state_partition, group_id, topic_key, partition, other_member_id, other_from_offset)
"""
"""The table with `to_ms`, when the first of both ended; null: neither has. It is the beginning where no table tells it,
as of tasks that are twice in one process."""
OWNERSHIP = f"""
    select i.group_id, i.topic, i.partition, i.member_id, m.client_id, i.first_epoch as epoch,
        i.from_ms, i.from_exact, i.to_ms, i.to_exact, i.from_why, i.to_why
    from ({HELD}) i
    left join (
        select state_partition, group_id, member_id, arg_max(client_id, from_offset) as client_id
        from members group by all
    ) m using (state_partition, group_id, member_id)
    where i.from_ms <= $until and coalesce(i.to_ms, $until + 1) > $since
        and ($partition is null or i.partition = $partition)
        and ($topic is null or i.topic = $topic or ($partition is null and i.topic || '-' || i.partition = $topic))
        and ($group is null or i.group_id = $group)
    order by i.group_id, i.topic, i.partition, i.from_offset
"""
REBALANCES = """
    select group_id, kind, epoch, from_ms, cause, member_id, why, members, partitions_moved,
        target_ms - from_ms as target_after_ms, settled_ms - from_ms as settled_after_ms,
        case when superseded then 'superseded' when settled_ms is not null then 'settled'
            when members = 0 then 'no members' else 'open' end as state, grade
    from rebalances
    where from_ms between $since and $until and ($group is null or group_id = $group)
    order by group_id, from_offset
"""
OVERLAPS = f"""
    select grade, group_id, topic, partition, ms, member_id, other_member_id, state_partition, "offset"
    from ({SECOND_OWNERS})
    where ms <= $until and (ms >= $since or coalesce(to_ms, $since) >= $since)
        and ($group is null or group_id = $group)
    order by grade desc, ms
"""
"""Second owners that began in the time, or went on into it."""
COVERAGE = """
    select state_partition, group_id, first_ms, last_ms, records, missing,
        coalesce(complete_since_ms, first_ms) as complete_since_ms
    from coverage
    where case when $group is null then scope = 'partition' else scope = 'group' and group_id = $group end
        and first_ms <= $until and last_ms >= $since
    order by state_partition, group_id
"""


@contextmanager
def _opened(lake: Lake) -> Iterator[Any]:
    """DuckDB, in which the tables of gold go by their names."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        try:
            for name, query in at_one_batch(lake, lambda: {n: lake.sql(t, db) for n, t in GOLD.items()}).items():
                db.execute(f'create view "{name}" as select * from {query}')
            db.register("runs", runs(lake))
            yield db
        except (duckdb.IOException, duckdb.InvalidInputException) as exc:
            raise AuditError(f"a file of {lake.root} cannot be read: {exc}. Put it back from a backup.") from exc


def at_one_batch(lake: Lake, read: Callable[[], Read]) -> Read:
    """Returns the result of `read` while all tables of gold are of the same batch: they get a batch one after another.
    Raises AuditError if a batch was begun and not ended."""
    until = time.monotonic() + WAIT_S
    while True:
        before = [lake.committed(t) for t in GOLD.values()]
        if len(set(before)) == 1:
            result = read()
            if [lake.committed(t) for t in GOLD.values()] == before:
                return result
        if time.monotonic() > until:
            raise AuditError(f"gold in {lake.root} is half written, and nobody goes on: run `sidecar audit run` again")
        time.sleep(0.1)


def ask(lake: Lake, sql: str, given: Mapping[str, Any] | None = None) -> Rows:
    """The tables of gold go by their names. `given`: values of $names in the query. Raises duckdb.Error for a query
    that is wrong by itself."""
    import duckdb

    with _opened(lake) as db:
        used = {name: value for name, value in (given or {}).items() if f"${name}" in sql}
        try:
            relation = db.sql(sql, params=used)
        except (duckdb.IOException, duckdb.InvalidInputException) as exc:
            if str(lake.base) in str(exc):
                raise
            raise duckdb.ProgrammingError(str(exc)) from exc  # all files of the lake could be opened
        if relation is None:  # it was no question
            return []
        # A time with a zone needs a package that nothing else here needs; the lake's are all UTC.
        picked = (f"#{i}::TIMESTAMP" if t == ZONED else f"#{i}" for i, t in enumerate(relation.types, 1))
        rows = relation.project(", ".join(picked)).fetchall()
        names = [n if n not in relation.columns[:i] else f"{n}:{i}" for i, n in enumerate(relation.columns)]
        return [dict(zip(names, row, strict=True)) for row in rows]


def broken(lake: Lake) -> dict[str, tuple[str, int]]:
    """Invariants that do not hold: name -> what should be so, and how many rows say otherwise. Beside those of gold,
    that each record is there once in bronze and silver."""
    violations = {}
    with _opened(lake) as db:
        below = {f"once_{t.layer}_{t.name}": once(t, lake.sql(t, db)) for t in (BRONZE, *SILVER_TABLES.values())}
        for name, (sentence, sql) in {**INVARIANTS, **below}.items():
            plain = sql.replace("left anti join", "anti join")
            ((count,),) = db.execute(f"select count(*) from ({plain})").fetchall()
            if count:
                violations[name] = (sentence, int(count))
    return violations
