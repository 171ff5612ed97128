"""The tables as the page reads them, also of a period or some groups only, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.audit.ask.query import HELD, SECOND_OWNERS
from sidecar.audit.moments import FOR_EVER_MS, shown
from sidecar.audit.tables.columns import TIME
from sidecar.audit.tables.gold import GOLD

BEGINS, ENDS = ("from_ms", "ms", "log_ms"), ("to_ms", "settled_ms")
"""Columns of times. What has none of `ENDS` is a single moment."""
SHARED = ("coverage", "setting_changes", "stale_writes", "unreadable")
"""Tables with rows of no group, which belong to every group in their state partition; settings are the brokers'."""
NAMING = (
    *("intervals", "unowned", "rebalances", "members", "second_owners"),
    *("stale_claims", "streams_not_ready", "streams_standby_coverage"),
)
"""Tables whose rows name a group that is there."""
NAMED = """select *, case when kind = 'streams' then 'task ' else '' end || coalesce(nullif(topic, ''), topic_key)
    as named from ({})"""
SHAPES = {
    "intervals": f"select *, coalesce(nullif(topic, ''), topic_key) as named from ({HELD})",
    "unowned": NAMED.format("""from unowned
        union all by name select *, 'share' as kind, topic_id as topic_key from share_coverage"""),
    "second_owners": NAMED.format(SECOND_OWNERS),
}
"""Tables that the page reads in another form. Intervals are those of all kinds of groups. Unowned time is also that in
which no member had a share group's partition although one should. `named`: the topic, or the task with its role."""


WORDS = """
    create macro span(ms) as case when ms < 1000 then ms || ' ms' when ms < 60000 then format('{:.1f} s', ms / 1000)
        when ms < 3600000 then format('{} min {} s', ms // 60000, ms % 60000 // 1000)
        when ms < 216000000 then format('{} h {} min', ms // 3600000, ms % 3600000 // 60000)
        else format('{} d {} h', ms // 86400000, ms % 86400000 // 3600000) end;
    create macro because(why) as case when why <> '' then ' (' || why || ')' end;
    create macro perhaps(grade) as case when grade <> 'proven' then ' (perhaps: records are missing)' end;
    create macro gravity(grade, sure) as case when grade = 'proven' then sure else 1 end;
    create macro ended(ms) as coalesce(ms, getvariable('until'));
    create macro lasting(begin, stop) as case when stop is not null then greatest(stop - begin, 0) end;
"""
"""A duration in its two largest units, and other words of findings. What has not ended lasts until the page's end."""


@dataclass(frozen=True)
class Period:
    """A period in Unix ms, both ends included."""

    since_ms: int = 0
    until_ms: int = FOR_EVER_MS

    @property
    def words(self) -> str:
        since = [f"from {stamp(self.since_ms)}"] if self.since_ms > 0 else []
        return " ".join(since + ([f"until {stamp(self.until_ms)}"] if self.until_ms < FOR_EVER_MS else []))


def stamp(ms: int) -> str:
    return f"{shown(ms).partition('.')[0]} UTC"


@dataclass(frozen=True)
class Budget:
    """Limits of the page. Above them, short neighbouring bars become one; of other rows the newest or longest stay."""

    intervals: int = 250_000
    unowned: int = 100_000
    rebalances: int = 100_000
    members: int = 50_000
    claims: int = 20_000
    findings: int = 1000
    uncovered_ms: int = 6000
    """Time for which a share group's partition may lack a member: Kafka's assignment interval and a heartbeat."""
    lacking_ms: int = 11_000
    """Time for which a task may lack a standby: the interval, a heartbeat to release another role, and one more."""
    unowned_ms: int = 1000
    """Shorter unowned time is a normal change of owner, and no finding."""
    reasons: int = 3_000_000
    """Characters of distinct optional reasons."""


def opened(tables: Mapping[str, Any], groups: Collection[str], period: Period | None) -> Any:
    """Returns DuckDB with the tables of gold as the page reads them, and the table `groups` with their numbers `g`.
    Tables whose rows name a group have that number, too; null: of no group. `groups`: only these; all if empty."""
    import duckdb

    db = duckdb.connect()
    for name, gold in GOLD.items():
        rows = tables.get(name, gold.arrow.empty_table())
        db.register(name, rows.select([c.name for c in gold.columns if c.type != TIME]))
    db.execute("create table chosen as select unnest($1::varchar[]) as group_id", [list(groups)])
    db.execute("create schema page")
    theirs = [name for name, gold in GOLD.items() if "group_id" in gold.names]
    for name in GOLD:
        shape = SHAPES.get(name, f"from {name}")
        where = [] if period is None else _touching(db.sql(shape).columns, period)
        if groups and name in theirs:
            none = " or coalesce(group_id, '') = ''" if name in SHARED else ""
            where.append(f"(group_id in (from chosen){none})")
        db.execute(f"create view seen_{name} as from ({shape}) where {' and '.join(where) or 'true'}")
    homes = " union ".join(f"select state_partition, group_id from seen_{n}" for n in theirs if n != "unreadable")
    db.execute(f"create table homes as select state_partition from ({homes}) semi join chosen using (group_id)")
    named = " union ".join(f"select state_partition, group_id from seen_{name}" for name in NAMING)
    db.execute(f"""create table page.groups as
        select row_number() over (order by group_id, state_partition) - 1 as g, * from ({named}
            union select state_partition, group_id from seen_setting_changes where group_id <> ''
            union select state_partition, group_id from seen_coverage where scope <> 'partition')""")
    for name in GOLD:
        here = "state_partition in (from homes)" if groups and name != "setting_changes" else "true"
        numbered = f"select g, r.* from seen_{name} r left join page.groups using (state_partition, group_id)"
        db.execute(f"create table page.{name} as {numbered if name in theirs else f'from seen_{name}'} where {here}")
    for name in GOLD:
        db.unregister(name)
    db.execute("set schema = 'page'")
    db.execute(WORDS)
    return db


def _touching(names: Collection[str], period: Period) -> list[str]:
    """Returns the condition of rows that touch the period; of the table coverage all do."""
    begin = next((n for n in BEGINS if n in names), None)
    if begin is None:
        return []
    end = next((n for n in ENDS if n in names), begin)
    goes_on = "not superseded" if "superseded" in names else "true"
    lasts = f"{begin} >= {period.since_ms} or coalesce({end} >= {period.since_ms}, {goes_on})"
    return [f"{begin} <= {period.until_ms} and ({lasts})"]


def rows_of(db: Any, query: str) -> list[dict[str, Any]]:
    found = db.sql(query)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
