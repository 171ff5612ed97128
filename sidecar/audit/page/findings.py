"""The findings, one list for all kinds, each with a time to zoom to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sidecar.audit.page.groups import Groups
from sidecar.audit.page.kinds import FAULT, KINDS, LONGEST, NOTE, POSSIBLE, Finding, handed_over, span
from sidecar.audit.page.pack import NONE, Row, Texts, duration
from sidecar.audit.page.source import Source

MANY = 20


def findings(source: Source, groups: Groups, until: int, lacking_ms: int) -> list[Finding]:
    """All of them, by time. `lacking_ms`: of the budget."""
    unsorted = [
        *_overlaps(source, groups, until),
        *_stale_writes(source, groups),
        *_went_back(source, groups),
        *_unreadable(source, groups),
        *groups.unowned_findings(),
        *_lacking(source, groups, until, lacking_ms),
        *_not_ready(source, groups, until),
        *_outages(source),
        *_stale_claims(source, groups),
        *_settings(source, groups),
    ]
    return sorted(unsorted, key=lambda f: (f.ms, f.partition, f.offset))


def pack(all_findings: list[Finding], groups: Groups, texts: Texts, most: int, left_out: list[str]) -> dict[str, Any]:
    """As columns, no more than `most` of each kind; and how many there are of each kind."""
    counts = Counter(f.kind for f in all_findings)
    kept: list[Finding] = []
    for key, name in KINDS:
        mine = [f for f in all_findings if f.kind == key]
        if len(mine) > most:
            longest = key in LONGEST
            mine.sort(key=(lambda f: (f.end or f.ms) - f.ms) if longest else (lambda f: f.ms))
            mine = mine[-most:]
            left_out.append(
                f"{counts[key] - most} of {counts[key]} findings of the kind “{name}”; the"
                f" {'longest' if longest else 'newest'} {most} are listed."
            )
        kept += mine
    kept.sort(key=lambda f: (f.ms, f.partition, f.offset))
    order = [key for key, _ in KINDS]
    return {
        "kinds": [[key, name, counts[key]] for key, name in KINDS],
        "k": [order.index(f.kind) for f in kept],
        "grave": [f.grave for f in kept],
        "t": [f.ms for f in kept],
        "d": [duration(f.ms, f.end) for f in kept],
        "o": [f.offset for f in kept],
        "sp": [f.partition for f in kept],
        "g": [f.group for f in kept],
        "p": [f.place for f in kept],
        "m": [f.owner for f in kept],
        "text": [texts(f.text) for f in kept],
    }


def _overlaps(source: Source, groups: Groups, until: int) -> Iterator[Finding]:
    table = source.rows("second_owners")
    for n, r in enumerate(table.each_row()):
        g = groups.number[r["state_partition"], r["group_id"]]
        place, new, old = groups.place(g, table, n), r["member_id"], r["other_member_id"]
        proven = r["grade"] == "proven"
        yield Finding(
            kind="overlap" if proven else "overlap?",
            grave=FAULT if proven else POSSIBLE,
            ms=r["ms"],
            end=max(until if r["to_ms"] is None else r["to_ms"], r["ms"]),
            offset=r["offset"],
            partition=r["state_partition"],
            text=f"{groups.place_name(g, place)}: {groups.called(g, new)} began while {groups.called(g, old)}"
            f" {'still owned it' if proven else 'perhaps still owned it'}",
            group=g,
            place=place,
            owner=groups.owner(g, new),
        )


def _moment(kind: str, grave: int, r: Row, text: str, groups: Groups, at: str = "", **more: int) -> Finding:
    """Returns a finding of a single moment. `at`: what the names of its columns begin with."""
    sp, group = r["state_partition"], groups.number.get((r["state_partition"], r["group_id"] or ""), NONE)
    return Finding(kind, grave, r[f"{at}ms"], None, r[f"{at}offset"], sp, text, group, **more)


def _reason(r: Row) -> str:
    return f" ({r['why']})" if r["why"] else ""


def _stale_writes(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("stale_writes", shared=True).each_row():
        of = " ".join(filter(None, (r["kind"], r["sub_id"])))
        claim = r["what"] == "claim"
        described = "a claim of a fenced producer" if claim else f"a record ({of}) of a fenced coordinator"
        than = "" if r["claimed_epoch"] is None else f", the last claim was {r['claimed_epoch']}"
        text = f"{described}: owner epoch {r['owner_epoch']}{than}; it changes nothing{_reason(r)}"
        yield _moment("stale", FAULT, r, text, groups)


def _went_back(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("rebalances", where={"went_back": [True]}).each_row():
        name = "generation" if r["kind"] == "classic" else "epoch"
        sure = r["grade"] == "proven"
        text = f"{name} {r['epoch']} is not higher than the one before it{_reason(r)}"
        text += " (perhaps the group had gone: records are missing)" * (not sure)
        yield _moment("back", FAULT if sure else POSSIBLE, r, text, groups, at="from_")


def _unreadable(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("unreadable", shared=True).each_row():
        text = f"{r['kind'] or 'unknown kind'}: {r['reason']}"
        yield _moment("unreadable", POSSIBLE, {**r, "ms": r["log_ms"]}, text, groups)


def _lasting(kind: str, r: Row, end: int | None, text: str, group: int = NONE, place: int = NONE) -> Finding:
    """Returns a note of something that began with a record and went on for a while."""
    return Finding(kind, NOTE, r["from_ms"], end, r["from_offset"], r["state_partition"], text, group, place)


def _lacking(source: Source, groups: Groups, until: int, least_ms: int) -> Iterator[Finding]:
    for r in source.rows("streams_standby_coverage").each_row():
        task, p, end = r["subtopology"], r["partition"], r["to_ms"]
        lasted = (until if end is None else end) - r["from_ms"]
        if lasted >= least_ms:
            text = f"task {task}-{p} had {r['held']} of {r['wanted']} standbys for {span(lasted)}"
            text += "; it still has" * (end is None) + " (perhaps: records are missing)" * (r["grade"] != "proven")
            g = groups.number[r["state_partition"], r["group_id"]]
            yield _lasting("lacking", r, end, text, g, groups.task(g, task, p))


def _not_ready(source: Source, groups: Groups, until: int) -> Iterator[Finding]:
    for r in source.rows("streams_not_ready").each_row():
        lasted = (until if r["to_ms"] is None else r["to_ms"]) - r["from_ms"]
        text = f"the topology was not ready for {span(max(lasted, 0))}, so no task was assigned ({r['from_why']})"
        yield _lasting("unready", r, r["to_ms"], text, groups.number[r["state_partition"], r["group_id"]])


def _outages(source: Source) -> Iterator[Finding]:
    for r in source.rows("outages").each_row():
        if not handed_over(r["why"]):
            between = f"between claims {r['former_claim']} and {r['claim']}: {r['why']}"
            away = f"had no coordinator for at most {span(r['at_most_ms'])}"
            text = f"state partition {r['state_partition']} {away}, {between}"
            yield _lasting("outage", r, max(r["from_ms"], r["to_ms"]), text)


def _stale_claims(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("stale_claims").each_row():
        g, member, parts = groups.number[r["state_partition"], r["group_id"]], r["member_id"], r["partitions"]
        partitions = ", ".join(map(str, parts[:MANY])) + (" and more" if len(parts) > MANY else "")
        whose = f"{groups.called(g, r['holder'])}’s" if r["holder"] else "unowned"
        known = r["generation"] >= 0
        generation = f"got in generation {r['generation']}" if known else "it does not say in which generation"
        claimed = f"{groups.called(g, member)} said that it owned {r['topic']}: {partitions}"
        text = f"{claimed} ({generation}); they were {whose}"
        yield _moment("claimed", NOTE, r, text, groups, owner=groups.owner(g, member))


def _settings(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("setting_changes", shared=True).each_row():
        now = "removed" if r["value"] is None else f"= {r['value']}"
        text = f"{'' if r['group_id'] else 'brokers: '}{r['name']} {now}{_reason(r)}"
        yield _moment("setting", NOTE, r, text, groups)
