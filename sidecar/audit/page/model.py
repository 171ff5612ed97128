"""Data that the page embeds, made from gold's tables. Each part is described where it is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sidecar.audit.page import findings, verdict
from sidecar.audit.page.groups import Groups
from sidecar.audit.page.kinds import handed_over
from sidecar.audit.page.pack import NONE, Bar, Row, Texts, bar, numbers, spans
from sidecar.audit.page.source import Budget, Period, Source
from sidecar.core.runtime.commands import RENEWED

NEEDED = ("coverage", "intervals", "second_owners", "stale_writes", "unreadable")
"""Tables without which the verdict cannot be clean."""
CLOCKS_APART_MS = 86_400_000
"""Records may be that much newer than the time of the audit: other machines wrote them, by their own clocks."""


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
    source = Source(tables, groups, period)
    texts = Texts(budget.reasons)
    covered = verdict.coverage(source.rows("coverage", shared=True), groups)
    end = _end(covered, marks, until_ms)
    end = end if period is None else min(end, period.until_ms)
    left_out = [f"The table {n} is not there: what it would show is not on this page." for n in source.absent]
    if period is not None:
        left_out.append(f"Only the time {period.words} is shown, with what reaches into it.")
    shown = Groups(source, covered, texts, budget, end)
    all_findings = findings.findings(source, shown, end, budget, shown.left_out)
    listed = findings.pack(all_findings, texts, budget.findings, left_out)
    coordinators = _coordinators(source, texts, budget.claims, left_out)
    packed = shown.packed(coordinators, all_findings)
    left_out += shown.left_out
    if texts.left_out:
        left_out.append(f"{texts.left_out} reasons of intervals, members or claims: see those of the rebalances.")
    absent = [n for n in NEEDED if n in source.absent]
    parts = {p for p, _ in shown} | {c["sp"] for c in coordinators}
    begins = [c[of]["t"][0] for c in coordinators for of in ("claims", "outages") if c[of]["t"]]
    begins += [g["from"] for g in packed if g["from"] != NONE]
    begins += [m.time_ms for m in marks] + [f.ms for f in all_findings] + [c.first_ms for c in covered.all]
    begin = min([*begins, end - 1])
    failed = [c[0] for c in checks if c[2] is False]
    return {
        "title": title,
        "from": begin if period is None else max(begin, min(period.since_ms, end - 1)),
        "until": end,
        "verdict": verdict.verdict(covered, all_findings, parts, shown, absent, failed, period, lacks),
        "groups": packed,
        "coordinators": coordinators,
        "findings": listed,
        "marks": [[m.time_ms, m.label, int(m.fault)] for m in sorted(marks, key=lambda m: m.time_ms)],
        "checks": [[label, str(value), good] for label, value, good in checks],
        "leftOut": left_out,
        "texts": texts.all,
    }


def _end(covered: verdict.Coverage, marks: Sequence[Mark], until_ms: int) -> int:
    known = max((c.last_ms for c in covered.all), default=None)
    return until_ms if known is None else min(until_ms + CLOCKS_APART_MS, max([known, *(m.time_ms for m in marks)]))


def _coordinators(source: Source, texts: Texts, most: int, left_out: list[str]) -> list[dict[str, Any]]:
    """Returns each state partition's claims, and how long it may have been without a coordinator before each.

    The bar of a coordinator that was followed by an outage ends with its last record. One that handed its partition
    over was there until then, whenever it wrote its last record."""
    claims, outages = defaultdict[int, list[Row]](list), defaultdict[int, list[Row]](list)
    for r in source.rows("coordinators"):
        claims[r.state_partition].append(r)
    for r in source.rows("outages"):
        if not handed_over(r.why):
            outages[r.state_partition].append(r)
    partitions = sorted(claims.keys() | outages.keys())
    share = max(most // max(len(partitions), 1), 1)
    out: list[dict[str, Any]] = []
    for p in partitions:
        mine, gaps = (sorted(of[p], key=attrgetter("from_offset")) for of in (claims, outages))
        last_ms = {r.former_claim: r.from_ms for r in gaps}
        takeovers = sum(r.from_why != RENEWED for r in mine[1:])
        mine, gaps = mine[-share:], gaps[-share:]
        bars = [Bar(r.from_ms, None if r.to_ms is None else last_ms.get(r.claim, r.to_ms), r) for r in mine]
        packed = {**spans([bars]), **numbers(mine, "claim", "node_id", "generation", "fenced")}
        packed |= {**texts.of(mine, "address", "member_id"), **texts.spare_of(mine, "from_why")}
        away = {**spans([[bar(r) for r in gaps]]), **numbers(gaps, "claim", "former_claim", "at_most_ms")}
        out.append({"sp": p, "takeovers": takeovers, "claims": packed, "outages": away})
    if total := sum(max(len(of) - share, 0) for of in claims.values()):
        left_out.append(f"{total} older claims of state partitions; the newest of each are here.")
    return out
