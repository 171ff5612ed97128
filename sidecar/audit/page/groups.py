"""Groups on the page, by DuckDB: their members, partitions and bars, their entries in the index.

The topic's name identifies a partition, with the topic's id only if one name had several ids. Where several members may
own a partition or task at once, each gets a lane that is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sidecar.audit.page.pack import split_budget
from sidecar.audit.page.source import Budget
from sidecar.core.runtime.commands import MOVED, RENEWED

PLACED = ("intervals", "unowned", "second_owners")
PLACE = "g, named, partition, of_id, lane"
MEMBERS = """
    create table owners as with a as (
            select g, member_id, (0, from_ms, from_offset) as came,
                struct_pack(client_id, instance_id, process_id) as client from members
            union all select g, member_id, (1, from_ms, from_offset), null from intervals),
        b as (select g, member_id, min(came) as first,
            unnest(arg_max(client, came) filter (client is not null)) from a group by g, member_id),
        c as (select *, row_number() over (partition by g order by first, member_id) - 1 as m from b)
    select *, concat('m', m + 1, ' (', coalesce(nullif(client_id, ''), member_id), ')') as called from c;
    create macro called(of_g, of_member) as coalesce(
        (select called from owners where g = of_g and member_id = of_member), of_member);
    create macro number(of_g, of_member) as (select m from owners where g = of_g and member_id = of_member);
"""
"""Members in the order of their joins, by their last record; and a member's name on the page: its short label, and its
client id if known."""
PLACES = f"""
    create table places as select row_number() over (partition by g order by named, partition, of_id, lane) - 1 as p, *,
            concat(named, '-', partition, ' (' || nullif(of_id, '') || ')',
                case when lane > 0 then ' [' || lane + 1 || ']' end) as name
        from ({" union ".join(f"select {PLACE} from {name}" for name in PLACED)});
"""
ALIVE = """
    create table alive as select g, min(begin) as begin, max(until) as until,
            row_number() over (partition by g order by min(begin)) as nth from (
            select *, count(*) filter (apart) over (partition by g order by begin, until) as part from (
                select g, from_ms as begin, ended(to_ms) as until, coalesce(begin > max(until) over (partition by g
                    order by from_ms, until rows between unbounded preceding and 1 preceding), true) as apart
                from members))
        group by g, part
"""
"""Spans of time in which a group has members, in their order."""
INDEX = f"""
    with seen as (select g, kind, from_ms from rebalances union all select g, kind, from_ms from members
            union all select g, kind, from_ms from intervals),
        found as (select g, grave, ms, coalesce(until, ms) - ms as took, kind in ('unowned', 'uncovered') as free
            from findings),
        took as (select state_partition, from_why <> '{RENEWED}' and lag(1)
            over (partition by state_partition order by from_offset) is not null as over from coordinators)
    select id, sp, kinds, "from", partitions, members, rebalances, slowest[1] as settle, slowest[2] as "settleAt",
            longest[1] as unowned, longest[2] as "unownedAt", faults, possible, takeovers from (
        select g, group_id as id, state_partition as sp,
            (select coalesce(list_sort(list(distinct kind)), []) from seen s where s.g = groups.g) as kinds,
            (select min(from_ms) from seen s where s.g = groups.g) as "from",
            (select count(distinct (named, partition, of_id)) from places s where s.g = groups.g) as partitions,
            (select count(*) from members s where s.g = groups.g and to_ms is null) as members,
            (select count(*) from rebalances s where s.g = groups.g and not anew) as rebalances,
            (select max((greatest(settled_ms - from_ms, 0), from_ms)) from rebalances s
                where s.g = groups.g and settled_ms is not null) as slowest,
            (select max((took, ms)) from found s where s.g = groups.g and free) as longest,
            (select count(*) from found s where s.g = groups.g and grave = 0) as faults,
            (select count(*) from found s where s.g = groups.g and grave = 1) as possible,
            (select count(*) filter (over) from took s where s.state_partition = groups.state_partition
                group by s.state_partition) as takeovers
        from groups) order by g
"""
"""The index of groups. A group's first epoch is no rebalance, and the first claim no takeover."""


def number_all(db: Any) -> None:
    """Makes the tables of members, and of partitions and their lanes, and numbers rows by them. Removes outages that
    were none: a live coordinator handed its partition over."""
    db.execute(MEMBERS)
    known = " union all ".join(f"select g, named, topic_key, topic_id from {name}" for name in PLACED)
    db.execute(f"""create table topics as select g, named, count(distinct topic_key) > 1 as several from ({known})
        where topic_id <> '' group by all""")
    for name in PLACED:
        db.execute(f"""create or replace table {name} as select t.*, row_number() over () as id, 0 as lane,
                case when several and topic_id <> '' then topic_key else '' end as of_id
            from {name} t left join topics using (g, named)""")
    db.register("free_lanes", _free_lanes(db))
    db.execute("update intervals set lane = free_lanes.lane from free_lanes where free_lanes.id = intervals.id")
    db.execute(PLACES)
    for name in PLACED:
        with_place = f"select p, name, t.*, 1 as many from {name} t join places using ({PLACE})"
        db.execute(f"create or replace table {name} as {with_place}")
    db.execute(ALIVE)
    db.execute(f"delete from outages where starts_with(why, '{MOVED}')")


def _free_lanes(db: Any) -> Any:
    """Returns the lanes of partitions of share groups, and of standby and warm-up tasks."""
    rows = db.sql("""select id, (g, named, partition, of_id)::varchar, from_ms, to_ms from intervals
        where kind = 'share' or role <> 'active' order by from_ms, from_offset""").fetchall()
    ends = defaultdict[str, list[int | None]](list)
    lanes = []
    for _, place, begin, end in rows:
        taken = ends[place]
        lane = next((n for n, until in enumerate(taken) if until is not None and until <= begin), len(taken))
        taken[lane : lane + 1] = [end]
        lanes.append(lane)
    return pa.table({"id": pa.array([r[0] for r in rows], pa.int64()), "lane": pa.array(lanes, pa.int32())})


def limit(db: Any, budget: Budget) -> Iterator[str]:
    """Leaves out rows beyond the budget, and yields what was left out or merged."""
    for name in ("coordinators", "outages"):
        yield from _newest(db, name, "state_partition", budget.claims)
    for name in ("rebalances", "members"):
        yield from _newest(db, name, "g", getattr(budget, name))
    for name in ("intervals", "unowned"):
        yield from _merged(db, name, getattr(budget, name))


def _newest(db: Any, name: str, by: str, most: int) -> Iterator[str]:
    """Makes a table `shown_*` with the newest rows of each group or state partition. Yields what was left out."""
    db.execute(f"""create table shown_{name} as select * exclude (age) from (
            select *, row_number() over (partition by {by} order by from_offset desc) as age from {name})
        qualify row_number() over (order by age, {by}) <= {most}""")
    ((lost,),) = db.sql(f"select (select count(*) from {name}) - (select count(*) from shown_{name})").fetchall()
    if lost:
        of_each = "group" if by == "g" else "state partition"
        yield f"{lost} older rows of {name}; the newest of each {of_each} are here."


def _merged(db: Any, name: str, most: int) -> Iterator[str]:
    """Merges short neighbours in the lanes of groups with too many bars, and ever longer ones, until each group has at
    most its share of `most`. Yields what was merged. All groups are merged together: a query each takes 10,000 groups
    half an hour.

    `many`: how many rows a bar stands for; its other values are those of the first one."""
    lanes = db.sql(f"select g, count(*), count(distinct p) from {name} group by g order by g").fetchall()
    least = [max(share, r[2]) for r, share in zip(lanes, split_budget([r[1] for r in lanes], most), strict=True)]
    db.register(
        "shares", pa.table({"g": pa.array([r[0] for r in lanes], pa.int64()), "most": pa.array(least, pa.int64())})
    )
    db.execute(f"""create or replace table merging as select g, group_id, most, 0::bigint as grain, count(*) as had,
        count(*) as bars from {name} join shares using (g) group by all""")
    bar = """p, case when grain > 0 and ended(to_ms) - from_ms < grain then from_ms // grain end,
        case when grain = 0 or ended(to_ms) - from_ms >= grain then id end"""
    while db.sql("from merging where bars > most limit 1").fetchall():
        db.execute("update merging set grain = greatest(grain * 4, 1000) where bars > most")
        db.execute(f"""update merging set bars = c.bars from (select g, count(distinct ({bar})) as bars from {name}
            join (select g, grain from merging where bars > most) using (g) group by g) c where merging.g = c.g""")
    merged = db.sql("select group_id, had, bars, span(grain) from merging where grain > 0 order by g").fetchall()
    if merged:
        db.execute(f"""create or replace table {name} as
            select * exclude (n, last, bars, grain) replace (last as to_ms, bars as many) from (
                select *, row_number() over (bar order by from_ms, from_offset) as n, count(*) over bar as bars,
                    case when count(*) over bar = count(to_ms) over bar then max(to_ms) over bar end as last
                from {name} join (select g, grain from merging) using (g) window bar as (partition by g, {bar}))
            where n = 1""")
    for group_id, had, bars, words in merged:
        yield f"{group_id}: {had} rows of {name} are drawn as {bars} bars; neighbours shorter than {words} became one."
