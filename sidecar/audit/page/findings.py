"""The findings, one list for all kinds, each with a time to zoom to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sidecar.audit.page.groups import Groups
from sidecar.audit.page.kinds import FAULT, KINDS, LONGEST, NOTE, POSSIBLE, Finding, handed_over, span
from sidecar.audit.page.pack import NONE, Texts, duration
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
    for n, (sp, group, ms, offset, grade) in enumerate(
        table.each("state_partition", "group_id", "ms", "offset", "grade")
    ):
        g = groups.number[sp, group]
        place = groups.place(g, table, n)
        new, old = table["member_id"][n], table["other_member_id"][n]
        ends = (
            groups.end(g, place, new, table["from_offset"][n]),
            groups.end(g, place, old, table["other_from_offset"][n]),
        )
        proven = grade == "proven"
        yield Finding(
            kind="overlap" if proven else "overlap?",
            grave=FAULT if proven else POSSIBLE,
            ms=ms,
            end=max(min(until if e is None else e for e in ends), ms),
            offset=offset,
            partition=sp,
            text=f"{groups.place_name(g, place)}: {groups.called(g, new)} began while {groups.called(g, old)}"
            f" {'still owned it' if proven else 'perhaps still owned it'}",
            group=g,
            place=place,
            owner=groups.owner(g, new),
        )


def _stale_writes(source: Source, groups: Groups) -> Iterator[Finding]:
    for sp, group, ms, offset, what, kind, sub, mine, last, why in source.rows("stale_writes", shared=True).each(
        *(
            "state_partition",
            "group_id",
            "ms",
            "offset",
            "what",
            "kind",
            "sub_id",
            "owner_epoch",
            "claimed_epoch",
            "why",
        )
    ):
        of = " ".join(filter(None, (kind, sub)))
        described = "a claim of a fenced producer" if what == "claim" else f"a record ({of}) of a fenced coordinator"
        than = "" if last is None else f", the last claim was {last}"
        text = f"{described}: owner epoch {mine}{than}; it changes nothing{f' ({why})' if why else ''}"
        yield Finding("stale", FAULT, ms, None, offset, sp, text, groups.number.get((sp, group), NONE))


def _went_back(source: Source, groups: Groups) -> Iterator[Finding]:
    table = source.rows("rebalances", where={"went_back": [True]})
    for sp, group, kind, epoch, ms, offset, why in table.each(
        "state_partition", "group_id", "kind", "epoch", "from_ms", "from_offset", "why"
    ):
        name = "generation" if kind == "classic" else "epoch"
        text = f"{name} {epoch} is not higher than the one before it{f' ({why})' if why else ''}"
        yield Finding("back", FAULT, ms, None, offset, sp, text, groups.number[sp, group])


def _unreadable(source: Source, groups: Groups) -> Iterator[Finding]:
    for sp, group, ms, offset, kind, reason in source.rows("unreadable", shared=True).each(
        "state_partition", "group_id", "log_ms", "offset", "kind", "reason"
    ):
        number = groups.number.get((sp, group or ""), NONE)
        yield Finding("unreadable", POSSIBLE, ms, None, offset, sp, f"{kind or 'unknown kind'}: {reason}", number)


def _lacking(source: Source, groups: Groups, until: int, least_ms: int) -> Iterator[Finding]:
    names = ("state_partition", "group_id", "subtopology", "partition", "from_ms", "to_ms", "from_offset", "grade")
    table = source.rows("streams_standby_coverage")
    for sp, group, task, p, begin, end, offset, grade, held, wanted in table.each(*names, "held", "wanted"):
        lasted = (until if end is None else end) - begin
        if lasted >= least_ms:
            text = f"task {task}-{p} had {held} of {wanted} standbys for {span(lasted)}"
            text += "; it still has" * (end is None) + " (perhaps: records are missing)" * (grade != "proven")
            g = groups.number[sp, group]
            yield Finding("lacking", NOTE, begin, end, offset, sp, text, g, groups.task(g, task, p))


def _not_ready(source: Source, groups: Groups, until: int) -> Iterator[Finding]:
    for sp, group, begin, end, offset, why in source.rows("streams_not_ready").each(
        "state_partition", "group_id", "from_ms", "to_ms", "from_offset", "from_why"
    ):
        lasted = (until if end is None else end) - begin
        text = f"the topology was not ready for {span(max(lasted, 0))}, so no task was assigned ({why})"
        yield Finding("unready", NOTE, begin, end, offset, sp, text, groups.number[sp, group])


def _outages(source: Source) -> Iterator[Finding]:
    for sp, begin, end, offset, most, old, new, why in source.rows("outages").each(
        "state_partition", "from_ms", "to_ms", "from_offset", "at_most_ms", "former_claim", "claim", "why"
    ):
        if handed_over(why):
            continue
        between = f"between claims {old} and {new}: {why}"
        text = f"state partition {sp} had no coordinator for at most {span(most)}, {between}"
        yield Finding("outage", NOTE, begin, max(begin, end), offset, sp, text)


def _stale_claims(source: Source, groups: Groups) -> Iterator[Finding]:
    for sp, group, ms, offset, member, topic, parts, gen, holder in source.rows("stale_claims").each(
        *("state_partition", "group_id", "ms", "offset", "member_id", "topic", "partitions", "generation", "holder")
    ):
        g = groups.number[sp, group]
        partitions = ", ".join(map(str, parts[:MANY])) + (" and more" if len(parts) > MANY else "")
        whose = f"{groups.called(g, holder)}’s" if holder else "unowned"
        generation = f"got in generation {gen}" if gen >= 0 else "it does not say in which generation"
        text = f"{groups.called(g, member)} said that it owned {topic}: {partitions} ({generation}); they were {whose}"
        yield Finding("claimed", NOTE, ms, None, offset, sp, text, g, owner=groups.owner(g, member))


def _settings(source: Source, groups: Groups) -> Iterator[Finding]:
    for sp, group, ms, offset, name, value, why in source.rows("setting_changes", shared=True).each(
        "state_partition", "group_id", "ms", "offset", "name", "value", "why"
    ):
        whose = "" if group else "brokers: "
        now = "removed" if value is None else f"= {value}"
        text = f"{whose}{name} {now}{f' ({why})' if why else ''}"
        yield Finding("setting", NOTE, ms, None, offset, sp, text, groups.number.get((sp, group), NONE))
