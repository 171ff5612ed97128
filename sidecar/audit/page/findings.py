"""The findings, one list for all kinds, each with a time to zoom to."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from sidecar.audit.page.groups import Group, Groups, key_of, longest_shared
from sidecar.audit.page.kinds import FAULT, KINDS, LONGEST, NOTE, POSSIBLE, Finding, handed_over, span
from sidecar.audit.page.pack import NONE, Row, Texts, duration, numbers
from sidecar.audit.page.source import Budget, Source

MANY = 20
PERHAPS = " (perhaps: records are missing)"


def findings(source: Source, groups: Groups, until: int, budget: Budget, left_out: list[str]) -> list[Finding]:
    """All of them, by time."""
    unsorted = [
        *_overlaps(groups, until),
        *_stale_writes(source, groups),
        *_went_back(groups),
        *_unreadable(source, groups),
        *_unowned(groups, until, budget, left_out),
        *_lacking(source, groups, until, budget.lacking_ms),
        *_not_ready(source, groups, until),
        *_outages(source),
        *_stale_claims(source, groups),
        *_settings(source, groups),
    ]
    return sorted(unsorted, key=attrgetter("ms", "partition", "offset"))


def pack(all_findings: list[Finding], texts: Texts, most: int, left_out: list[str]) -> dict[str, Any]:
    """As columns, no more than `most` of each kind; and how many there are of each kind."""
    kinds, kept = [], []
    for n, (key, name) in enumerate(KINDS):
        mine = [f for f in all_findings if f.kind == key]
        kinds.append([key, name, len(mine)])
        if len(mine) > most:
            longest = key in LONGEST
            what = "longest" if longest else "newest"
            left_out.append(
                f"{len(mine) - most} of {len(mine)} findings of the kind “{name}”; the {what} {most} are listed."
            )
            mine = sorted(mine, key=(lambda f: (f.end or f.ms) - f.ms) if longest else attrgetter("ms"))[-most:]
        kept += [(f, n) for f in mine]
    kept.sort(key=lambda k: (k[0].ms, k[0].partition, k[0].offset))
    listed = [f for f, _ in kept]
    return {
        "kinds": kinds,
        "k": [n for _, n in kept],
        "t": [f.ms for f in listed],
        "d": [duration(f.ms, f.end) for f in listed],
        **numbers(listed, "grave", "offset", "partition", "group", "place", "owner"),
        **texts.of(listed, "text"),
    }


def _end(r: Row, until: int) -> int:
    return until if r.to_ms is None else r.to_ms


def _reason(r: Row) -> str:
    return f" ({r.why})" if r.why else ""


def _finding(kind: str, grave: int, r: Row, text: str, g: Group | None = None, **more: int | None) -> Finding:
    """Returns a finding that began with the row's record. Without `end` in `more` it is a single moment."""
    ms, offset = (r.ms, r.offset) if hasattr(r, "ms") else (r.from_ms, r.from_offset)
    known = {"ms": ms, "offset": offset, "partition": r.state_partition, "group": g.number if g else NONE}
    return Finding(kind=kind, grave=grave, text=text, **{**known, **more})


def _overlaps(groups: Groups, until: int) -> Iterator[Finding]:
    for g, r in groups.rows("second_owners"):
        sure, place, end = r.grade == "proven", g.place(r), max(_end(r, until), r.ms)
        text = f"{g.names[place]}: {g.called(r.member_id)} began while {g.called(r.other_member_id)}"
        text += " still owned it" if sure else " perhaps still owned it"
        kind, grave = ("overlap", FAULT) if sure else ("overlap?", POSSIBLE)
        yield _finding(kind, grave, r, text, g, end=end, place=place, owner=g.owner(r.member_id))


def _stale_writes(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("stale_writes", shared=True):
        of = " ".join(filter(None, (r.kind, r.sub_id)))
        described = "a claim of a fenced producer" if r.what == "claim" else f"a record ({of}) of a fenced coordinator"
        than = "" if r.claimed_epoch is None else f", the last claim was {r.claimed_epoch}"
        text = f"{described}: owner epoch {r.owner_epoch}{than}; it changes nothing{_reason(r)}"
        yield _finding("stale", FAULT, r, text, groups.get(key_of(r)))


def _went_back(groups: Groups) -> Iterator[Finding]:
    for g, r in groups.rows("rebalances"):
        if r.went_back:
            name, sure = "generation" if r.kind == "classic" else "epoch", r.grade == "proven"
            text = f"{name} {r.epoch} is not higher than the one before it{_reason(r)}"
            text += " (perhaps the group had gone: records are missing)" * (not sure)
            yield _finding("back", FAULT if sure else POSSIBLE, r, text, g)


def _unreadable(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("unreadable", shared=True):
        text = f"{r.kind or 'unknown kind'}: {r.reason}"
        yield _finding("unreadable", POSSIBLE, r, text, groups.get(key_of(r)))


def _unowned(groups: Groups, until: int, budget: Budget, left_out: list[str]) -> Iterator[Finding]:
    """Yields findings of partitions that were unowned while the group had members: an empty group's are unowned by
    right. For a share group, of partitions that no member had although one subscribed to them."""
    brief = 0
    for g, r in groups.rows("unowned"):
        shared = longest_shared(g.alive, r.from_ms, _end(r, until))
        if shared is None:
            continue
        share, lasted = r.kind == "share", shared[1] - shared[0]
        if lasted < (budget.uncovered_ms if share else budget.unowned_ms):
            brief += not share
            continue
        place, sure = g.place(r), r.grade == "proven"
        condition = "a member subscribed to it" if share else "the group had members"
        text = f"{g.names[place]} was nobody’s for {span(lasted)} while {condition}"
        text += "; it still is" * (r.to_ms is None) + PERHAPS * (not sure)
        kind, grave = "uncovered" if share else "unowned", NOTE if sure else POSSIBLE
        yield _finding(kind, grave, r, text, g, ms=shared[0], end=shared[1], place=place)
    if brief:
        least = span(budget.unowned_ms)
        left_out.append(f"{brief} times a partition was nobody’s for less than {least}: drawn, but not listed.")


def _lacking(source: Source, groups: Groups, until: int, least_ms: int) -> Iterator[Finding]:
    for r in source.rows("streams_standby_coverage"):
        g, lasted = groups[key_of(r)], _end(r, until) - r.from_ms
        if lasted >= least_ms:
            text = f"task {r.subtopology}-{r.partition} had {r.held} of {r.wanted} standbys for {span(lasted)}"
            text += "; it still has" * (r.to_ms is None) + PERHAPS * (r.grade != "proven")
            yield _finding("lacking", NOTE, r, text, g, end=r.to_ms, place=g.task(r.subtopology, r.partition))


def _not_ready(source: Source, groups: Groups, until: int) -> Iterator[Finding]:
    for r in source.rows("streams_not_ready"):
        lasted = span(max(_end(r, until) - r.from_ms, 0))
        text = f"the topology was not ready for {lasted}, so no task was assigned ({r.from_why})"
        yield _finding("unready", NOTE, r, text, groups[key_of(r)], end=r.to_ms)


def _outages(source: Source) -> Iterator[Finding]:
    for r in source.rows("outages"):
        if not handed_over(r.why):
            between = f"between claims {r.former_claim} and {r.claim}: {r.why}"
            away = f"had no coordinator for at most {span(r.at_most_ms)}"
            text = f"state partition {r.state_partition} {away}, {between}"
            yield _finding("outage", NOTE, r, text, end=max(r.from_ms, r.to_ms))


def _stale_claims(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("stale_claims"):
        g = groups[key_of(r)]
        partitions = ", ".join(map(str, r.partitions[:MANY])) + " and more" * (len(r.partitions) > MANY)
        whose = f"{g.called(r.holder)}’s" if r.holder else "unowned"
        generation = f"got in generation {r.generation}" if r.generation >= 0 else "it does not say in which generation"
        claimed = f"{g.called(r.member_id)} said that it owned {r.topic}: {partitions}"
        text = f"{claimed} ({generation}); they were {whose}"
        yield _finding("claimed", NOTE, r, text, g, owner=g.owner(r.member_id))


def _settings(source: Source, groups: Groups) -> Iterator[Finding]:
    for r in source.rows("setting_changes", shared=True):
        now = "removed" if r.value is None else f"= {r.value}"
        text = f"{'' if r.group_id else 'brokers: '}{r.name} {now}{_reason(r)}"
        yield _finding("setting", NOTE, r, text, groups.get(key_of(r)))
