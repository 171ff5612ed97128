"""Data that the page embeds, made from gold's tables. Each part is described where it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.audit.page import findings, verdict
from sidecar.audit.page.groups import Groups
from sidecar.audit.page.kinds import Finding, handed_over
from sidecar.audit.page.pack import NONE, Rows, Texts, deltas, duration
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
    all_findings = findings.findings(source, shown, end, budget.lacking_ms)
    listed = findings.pack(all_findings, shown, texts, budget.findings, left_out)
    coordinators = _coordinators(source, texts, budget.claims, left_out)
    packed = shown.packed(coordinators, all_findings)
    left_out += shown.left_out
    if texts.left_out:
        left_out.append(f"{texts.left_out} reasons of intervals, members or claims: see those of the rebalances.")
    absent = [n for n in NEEDED if n in source.absent]
    parts = {p for p, _ in shown.keys} | {c["sp"] for c in coordinators}
    begin = _begin(packed, coordinators, all_findings, covered, marks, end)
    failed = [c[0] for c in checks if c[2] is False]
    return {
        "title": title,
        "from": begin if period is None else max(begin, min(period.since_ms, end - 1)),
        "until": end,
        "verdict": verdict.verdict(covered, all_findings, parts, shown.keys, absent, failed, period, lacks),
        "groups": packed,
        "coordinators": coordinators,
        "findings": listed,
        "marks": [[m.time_ms, m.label, int(m.fault)] for m in sorted(marks, key=lambda m: m.time_ms)],
        "checks": [[label, str(value), good] for label, value, good in checks],
        "leftOut": left_out,
        "texts": texts.all,
    }


def _end(covered: verdict.Coverage, marks: Sequence[Mark], until_ms: int) -> int:
    known = covered.last_ms
    return until_ms if known is None else min(until_ms + CLOCKS_APART_MS, max([known, *(m.time_ms for m in marks)]))


def _begin(
    packed: list[dict[str, Any]],
    coordinators: list[dict[str, Any]],
    all_findings: list[Finding],
    covered: verdict.Coverage,
    marks: Sequence[Mark],
    end: int,
) -> int:
    """Returns the earliest time that is drawn."""
    times = [m.time_ms for m in marks] + [f.ms for f in all_findings]
    if covered.first_ms is not None:
        times.append(covered.first_ms)
    times += [c["claims"]["t"][0] for c in coordinators if c["claims"]["t"]]
    times += [c["outages"]["t"][0] for c in coordinators if c["outages"]["t"]]
    times += [g["from"] for g in packed if g["from"] != NONE]
    return min([*times, end - 1])


def _coordinators(source: Source, texts: Texts, most: int, left_out: list[str]) -> list[dict[str, Any]]:
    """Returns each state partition's claims, and how long it may have been without a coordinator before each.

    `last_ms`: (partition, claim) -> time of that coordinator's last record, if it was followed by an outage; its bar
    ends there. A coordinator that handed its partition over was there until then, whenever it wrote its last record."""
    claims, outages = source.rows("coordinators"), source.rows("outages")
    last_ms: dict[tuple[int, int], int] = {}
    by_partition: dict[int, tuple[list[int], list[int]]] = {}
    for n, p in enumerate(claims["state_partition"]):
        by_partition.setdefault(p, ([], []))[0].append(n)
    for n, (p, former, ms, why) in enumerate(outages.each("state_partition", "former_claim", "from_ms", "why")):
        if not handed_over(why):
            last_ms[p, former] = ms
            by_partition.setdefault(p, ([], []))[1].append(n)
    total = 0
    out: list[dict[str, Any]] = []
    for p, (mine, gaps) in sorted(by_partition.items()):
        mine.sort(key=lambda n: claims["from_offset"][n])
        gaps.sort(key=lambda n: outages["from_offset"][n])
        share = max(most // len(by_partition), 1)
        total += max(len(mine) - share, 0)
        out.append(
            {
                "sp": p,
                "takeovers": sum(claims["from_why"][n] != RENEWED for n in mine[1:]),
                "claims": _claims(claims, mine[-share:], last_ms, texts),
                "outages": _outages(outages, gaps[-share:]),
            }
        )
    if total:
        left_out.append(f"{total} older claims of state partitions; the newest of each are here.")
    return out


def _claims(c: Rows, mine: list[int], last_ms: Mapping[tuple[int, int], int], texts: Texts) -> dict[str, Any]:
    begin = [c["from_ms"][n] for n in mine]
    ends = []
    for n in mine:
        end = c["to_ms"][n]
        last = last_ms.get((c["state_partition"][n], c["claim"][n]))
        ends.append(last if end is not None and last is not None else end)
    return {
        "t": deltas(begin),
        "d": [duration(b, e) for b, e in zip(begin, ends, strict=True)],
        "o": deltas(c["from_offset"][n] for n in mine),
        "claim": [c["claim"][n] for n in mine],
        "node": [c["node_id"][n] for n in mine],
        "address": [texts(c["address"][n]) for n in mine],
        "member": [texts(c["member_id"][n]) for n in mine],
        "generation": [c["generation"][n] for n in mine],
        "fenced": [int(c["fenced"][n]) for n in mine],
        "why": [texts.spare(c["from_why"][n]) for n in mine],
    }


def _outages(o: Rows, mine: list[int]) -> dict[str, Any]:
    return {
        "t": deltas(o["from_ms"][n] for n in mine),
        "d": [duration(o["from_ms"][n], o["to_ms"][n]) for n in mine],
        "o": deltas(o["from_offset"][n] for n in mine),
        "e": [o["to_offset"][n] - o["from_offset"][n] for n in mine],
        "claim": [o["claim"][n] for n in mine],
        "former": [o["former_claim"][n] for n in mine],
        "most": [o["at_most_ms"][n] for n in mine],
    }
