"""The page's verdict: clean, findings or unknown, and since when the history is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.audit.gold.completeness import COLUMNS, Completeness, combined, completeness, reasons
from sidecar.audit.page.kinds import FAULT, KINDS, NOTE, POSSIBLE, Finding
from sidecar.audit.page.pack import NONE, Rows
from sidecar.audit.page.source import Period, stamp


@dataclass(frozen=True)
class Covered:
    """Coverage of a state partition or group. A group's is no better than its state partition's: records of it may
    have vanished without a trace."""

    first_ms: int
    last_ms: int
    records: int
    completeness: Completeness


@dataclass
class Coverage:
    partitions: dict[int, Covered] = field(default_factory=dict)
    groups: dict[tuple[int, str], Covered] = field(default_factory=dict)

    @property
    def all(self) -> list[Covered]:
        return [*self.partitions.values(), *self.groups.values()]

    @property
    def first_ms(self) -> int | None:
        return min((c.first_ms for c in self.all), default=None)

    @property
    def last_ms(self) -> int | None:
        return max((c.last_ms for c in self.all), default=None)

    def of(self, key: tuple[int, str]) -> Covered | None:
        return self.groups.get(key) or self.partitions.get(key[0])


def coverage(table: Rows, groups: Collection[str]) -> Coverage:
    """Returns the coverage by state partition and group. If only some `groups` are shown, gaps of other groups in their
    state partitions do not count."""
    result = Coverage()
    for p, scope, name, first, last, records, *rest in table.each(
        "state_partition", "scope", "group_id", "first_ms", "last_ms", "records", *COLUMNS
    ):
        covered = Covered(first, last, records, completeness(dict(zip(COLUMNS, rest, strict=True))))
        if scope == "partition":
            result.partitions[p] = covered
        else:
            result.groups[p, name] = covered
    for (p, name), mine in result.groups.items():
        if name in groups and p in result.partitions:
            whole = result.partitions[p]
            result.partitions[p] = replace(mine, last_ms=whole.last_ms)
    return result


def verdict(
    covered: Coverage,
    findings: Sequence[Finding],
    partitions: Iterable[int],
    groups: Iterable[tuple[int, str]],
    absent: Sequence[str],
    failed: Sequence[str] = (),
    period: Period | None = None,
    lacks: str = "",
) -> dict[str, Any]:
    """Returns the verdict. `state`: `findings`, `unknown` or `clean`. `since`: complete from then on; NONE if unknown.

    A state partition or a group without a row in the coverage makes the verdict unknown.
    `absent`: needed tables that do not exist. `failed`: names of other checks that found a fault. `period`: the time of
    all `findings`; what is missing from before it does not count. `lacks`: a sentence on what the
    tables lack of the lake."""
    grave = {g: sum(f.grave == g for f in findings) for g in (FAULT, POSSIBLE, NOTE)}
    grave[FAULT] += len(failed)
    unreadable = sum(f.kind == "unreadable" for f in findings)
    grave[POSSIBLE] -= unreadable
    names = dict(KINDS)
    seen_faults = Counter(f.kind for f in findings if f.grave == FAULT)
    faults = {names[kind]: seen_faults[kind] for kind in names if seen_faults[kind]} | Counter(failed)
    blind = {str(p) for p in partitions if p not in covered.partitions}
    blind |= {g for p, g in groups if covered.of((p, g)) is None}
    now = combined(c.completeness for c in (covered.partitions or covered.groups).values())
    since = covered.first_ms if now.complete else now.since_ms if now.since_known else None
    if period is not None and since is not None and since <= period.since_ms:
        now = Completeness()
    known = bool(covered.partitions or covered.groups) and not blind and not absent and not lacks
    complete = known and now.complete and not unreadable
    if grave[FAULT]:
        state = "findings"
    elif complete and not grave[POSSIBLE]:
        state = "clean"
    else:
        state = "unknown"
    lack = _why_unknown(blind, absent, covered) or lacks
    return {
        "state": state,
        "faults": grave[FAULT],
        "possible": grave[POSSIBLE],
        "notes": grave[NOTE],
        "known": known,
        "complete": complete,
        "since": NONE if since is None or not known else since,
        "records": sum(c.records for c in (covered.partitions or covered.groups).values()),
        "missing": now.missing,
        **_words(state, grave, faults, since if known else None, lack, reasons(now, unreadable), now.complete, period),
    }


def _why_unknown(blind: set[str], absent: Sequence[str], covered: Coverage) -> str:
    """Returns why the history cannot be judged; empty if it can be."""
    if absent:
        return f"Tables are missing: {', '.join(absent)}."
    if not covered.all:
        return "Nothing says what was read: the table coverage is empty."
    if blind:
        return f"Nothing says what was read of {', '.join(sorted(blind)[:5])}{' and others' if len(blind) > 5 else ''}."
    return ""


def _words(
    state: str,
    grave: Mapping[int, int],
    faults: Mapping[str, int],
    since: int | None,
    lack: str,
    why: list[str],
    whole: bool,
    period: Period | None,
) -> dict[str, str]:
    """Returns the verdict as a head and a sentence, so that the page and its readers agree. `why`: reasons for which
    the history is not complete; `whole`: it is complete, but for unreadable records."""
    count, possible = grave[FAULT], grave[POSSIBLE]
    if state == "findings":
        head = f"{count} {'finding' if count == 1 else 'findings'}"
    elif state == "clean":
        head = "Clean"
    elif lack or since is None:
        head = "Cannot know"
    elif whole:
        head = "Cannot know everything" if why else "Cannot rule it out"
    else:
        head = f"Cannot know before {stamp(since)}"
    parts = [] if period is None else [f"Of the time {period.words}:"]
    if state == "clean":
        parts.append(
            "No partition or active task had two owners, no fenced coordinator wrote, no epoch went back, every record"
            " was read."
        )
    if faults:
        listed = ", ".join(f"{name} ({n})" for name, n in faults.items())
        parts.append(f"{listed[:1].upper()}{listed[1:]}.")
    if possible:
        parts.append(f"{possible} more may have been: records are missing, and what they said is not known.")
    parts += [lack] if lack else why
    if state == "unknown" and not lack:
        parts.append("What is there shows no fault.")
    return {"head": head, "text": " ".join(parts)}
