"""Data that the page embeds, made from gold's tables. Each part is described where it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.audit.gold.completeness import Completeness
from sidecar.audit.page import verdict
from sidecar.audit.page.findings import findings
from sidecar.audit.page.groups import INDEX, limit, number_all
from sidecar.audit.page.pack import NONE, Pack
from sidecar.audit.page.source import Budget, Period, opened, rows_of
from sidecar.audit.tables.gold import GOLD

NEEDED = ("coverage", "intervals", "second_owners", "stale_writes", "unreadable")
"""Tables without which the verdict cannot be clean."""
CLOCKS_APART_MS = 86_400_000
"""Records may be that much newer than the time of the audit: other machines wrote them, by their own clocks."""
SPAN = "from_ms as t, lasting(from_ms, to_ms) as d, from_offset as o, lasting(from_offset, to_offset) as e"
LIFE = f"""g, {SPAN}, number(g, member_id) as m, from_exact, coalesce(to_exact, false) as to_exact,
    case when not from_exact then from_not_before_offset end as from_not_before_offset,
    case when not to_exact then to_not_before_offset end as to_not_before_offset, unseen, from_why, to_why"""
PACKED = {
    "findings": """select k, ms as t, lasting(ms, until) as d, grave, "offset", state_partition as partition,
            g as "group", place, owner, text
        from shown_findings order by ms, state_partition, "offset", k, g, place, text""",
    "claims": """select state_partition as sp, from_ms as t, lasting(from_ms, case when to_ms is not null then
            coalesce(last_ms, to_ms) end) as d, from_offset as o, lasting(from_offset, to_offset) as e, claim, node_id,
            generation, fenced, address, member_id, from_why
        from shown_coordinators left join (select state_partition, former_claim as claim, max(from_ms) as last_ms
            from outages group by all) using (state_partition, claim) order by sp, from_offset""",
    "outages": f"""select state_partition as sp, {SPAN}, claim, former_claim, at_most_ms
        from shown_outages order by sp, from_offset""",
    "epochs": """select g, from_ms as t, from_offset as o, lasting(from_ms, target_ms) as target,
            lasting(from_ms, settled_ms) as settled, anew, superseded, grade <> 'proven' as perhaps,
            kind = 'classic' as classic, epoch, members, partitions_moved, cause, member_id, assignor, why
        from shown_rebalances order by g, from_offset""",
    "owners": "select g, member_id as id, client_id, instance_id, process_id from owners order by g, m",
    "places": "select g, name from places order by g, p",
    "lives": f"select {LIFE}, client_host, rack_id from shown_members order by g, from_offset, member_id",
    "own": f"""select {LIFE}, p, many, kind = 'classic' as classic, first_epoch, last_epoch::bigint - first_epoch as le,
            revoking_from_ms from intervals order by g, p, from_ms, from_offset, member_id""",
    "free": f"""select g, p, {SPAN}, many, number(g, former_member_id) as m, number(g, member_id) as "to",
            grade <> 'proven' as perhaps from unowned order by g, p, from_ms, from_offset""",
}
"""Queries of what is drawn and listed. The bar of a coordinator that was followed by an outage ends with its last
record. One that handed its partition over was there until then, whenever it wrote its last record."""

BEGINS = "select min(ms) from findings" + "".join(
    f" union all select min(from_ms) from {name}"
    for name in ("shown_coordinators", "shown_outages", "rebalances", "members", "intervals")
)


@dataclass(frozen=True)
class Mark:
    """An event from outside the audit, to draw on the axis: an injected fault, or a client that came or left."""

    time_ms: int
    label: str
    fault: bool = False


def view(
    tables: Mapping[str, Any],
    *,
    groups: Collection[str] = (),
    marks: Sequence[Mark] = (),
    checks: Sequence[tuple[str, object, bool | None]] = (),
    title: str,
    until_ms: int,
    period: Period | None = None,
    budget: Budget | None = None,
    lacks: str = "",
) -> dict[str, Any]:
    """Returns the page's data. `tables`: Arrow tables by their name in gold. `groups`: only these; all if empty.

    `checks`: results of other checks, as label, value and whether it is good; a bad one is a fault.
    `until_ms`: time of the audit. The axis ends with the last record or mark, but no more than a day after that.
    `period`: only rows that touch it, also for the verdict. `lacks`: a sentence on what the tables lack of the lake."""
    budget = budget or Budget()
    absent = [name for name in GOLD if name not in tables]
    left_out = [f"The table {name} is not there: what it would show is not on this page." for name in absent]
    if period is not None:
        left_out.append(f"Only the time {period.words} is shown, with what reaches into it.")
    with opened(tables, groups, period) as db:
        covered = verdict.coverage(rows_of(db, "from coverage"), groups)
        end = _end(covered, marks, until_ms)
        end = end if period is None else min(end, period.until_ms)
        db.execute(f"set variable until = {end}")
        number_all(db)
        kinds = findings(db, budget, left_out)
        index = _index(db, covered)
        left_out += limit(db, budget)
        pack = Pack(db, budget.reasons)
        packed = {name: pack(query) for name, query in PACKED.items()}
        found = db.sql("select kind, grave, count(*) from findings group by all").fetchall()
        parts = db.sql("""select state_partition from groups union select state_partition from coordinators
            union select state_partition from outages""").fetchall()
        begins = db.sql(BEGINS).fetchall()
    if pack.left_out:
        left_out.append(f"{pack.left_out} reasons of intervals, members or claims: see those of the rebalances.")
    known_ms = [ms for (ms,) in begins if ms is not None]
    begin = min([*known_ms, *(m.time_ms for m in marks), *(c.first_ms for c in covered.all), end - 1])
    blind = {str(p) for (p,) in parts if p not in covered.partitions} | {g["id"] for g in index if not g["known"]}
    failed = [c[0] for c in checks if c[2] is False]
    return {
        "title": title,
        "from": begin if period is None else max(begin, min(period.since_ms, end - 1)),
        "until": end,
        "verdict": verdict.verdict(covered, found, blind, [n for n in NEEDED if n in absent], failed, period, lacks),
        "groups": index,
        "kinds": kinds,
        "tables": packed,
        "marks": [[m.time_ms, m.label, int(m.fault)] for m in sorted(marks, key=lambda m: m.time_ms)],
        "checks": [[label, str(value), good] for label, value, good in checks],
        "leftOut": left_out,
        "texts": pack.texts,
    }


def _end(covered: verdict.Coverage, marks: Sequence[Mark], until_ms: int) -> int:
    known = max((c.last_ms for c in covered.all), default=None)
    return until_ms if known is None else min(until_ms + CLOCKS_APART_MS, max([known, *(m.time_ms for m in marks)]))


def _index(db: Any, covered: verdict.Coverage) -> list[dict[str, Any]]:
    """Returns an entry for each group, in the order of their numbers."""
    out = []
    for row in rows_of(db, INDEX):
        mine = covered.of((row["sp"], row["id"]))
        known = mine.completeness if mine else Completeness()
        since = NONE if mine is None else mine.first_ms if known.since_ms is None else known.since_ms
        numbers = {name: NONE if value is None else value for name, value in row.items()}
        out.append({**numbers, "known": mine is not None, "missing": known.missing, "since": since})
    return out
