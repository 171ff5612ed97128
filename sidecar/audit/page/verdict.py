"""The page's verdict: clean, findings or unknown, and since when the history is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.audit.gold.completeness import Completeness, combined, completeness, reasons
from sidecar.audit.page.findings import FAULT, KINDS, POSSIBLE
from sidecar.audit.page.pack import NONE
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
    def judged(self) -> list[Covered]:
        """Returns the coverage on which the verdict depends: of state partitions, else of groups."""
        return list(self.partitions.values() or self.groups.values())

    def of(self, key: tuple[int, str]) -> Covered | None:
        return self.groups.get(key) or self.partitions.get(key[0])


def coverage(rows: Iterable[Mapping[str, Any]], groups: Collection[str]) -> Coverage:
    """Returns the coverage by state partition and group. If only some `groups` are shown, gaps of other groups in their
    state partitions do not count."""
    result = Coverage()
    for r in rows:
        covered = Covered(r["first_ms"], r["last_ms"], r["records"], completeness(r))
        if r["scope"] == "partition":
            result.partitions[r["state_partition"]] = covered
        else:
            result.groups[r["state_partition"], r["group_id"]] = covered
    for (p, name), mine in result.groups.items():
        if name in groups and p in result.partitions:
            result.partitions[p] = replace(mine, last_ms=result.partitions[p].last_ms)
    return result


def verdict(
    covered: Coverage,
    findings: Iterable[tuple[str, int, int]],
    blind: Collection[str],
    absent: Sequence[str],
    failed: Sequence[str] = (),
    period: Period | None = None,
    lacks: str = "",
) -> dict[str, Any]:
    """Returns the verdict. `state`: `findings`, `unknown` or `clean`. `since`: complete from then on; NONE if unknown.

    `findings`: kind, gravity and number. `blind`: state partitions and groups without a row in the
    coverage. `absent`: needed tables that do not exist. `failed`: names of other checks that found a fault. `period`:
    the time of all `findings`; what is missing from before it does not count. `lacks`: a sentence on what the tables
    lack of the lake."""
    found = Counter({(kind, grave): count for kind, grave, count in findings})
    faults = {name: found[kind, FAULT] for kind, name, _ in KINDS if found[kind, FAULT]}
    count, unreadable = sum(faults.values()) + len(failed), found["unreadable", POSSIBLE]
    possible = sum(n for (_, grave), n in found.items() if grave == POSSIBLE) - unreadable
    faults |= Counter(failed)
    now = combined(c.completeness for c in covered.judged)
    first_ms = min((c.first_ms for c in covered.all), default=None)
    since = first_ms if now.complete else now.since_ms if now.since_known else None
    if period is not None and since is not None and since <= period.since_ms:
        now = Completeness()
    known = bool(covered.all) and not blind and not absent and not lacks
    complete = known and now.complete and not unreadable
    state = "findings" if count else "clean" if complete and not possible else "unknown"
    if not known:
        since = None
    lack, why = _why_unknown(blind, absent, covered) or lacks, reasons(now, unreadable)
    if state == "findings":
        head = f"{count} {'finding' if count == 1 else 'findings'}"
    elif state == "clean":
        head = "Clean"
    elif lack or since is None:
        head = "Cannot know"
    elif now.complete:
        head = "Cannot know everything" if why else "Cannot rule it out"
    else:
        head = f"Cannot know before {stamp(since)}"
    return {
        "state": state,
        "head": head,
        "text": " ".join(_sentences(state, faults, possible, lack, why, period)),
        "faults": count,
        "possible": possible,
        "known": known,
        "complete": complete,
        "since": NONE if since is None else since,
        "records": sum(c.records for c in covered.judged),
        "missing": now.missing,
    }


def _why_unknown(blind: Collection[str], absent: Sequence[str], covered: Coverage) -> str:
    """Returns why the history cannot be judged; empty if it can be."""
    if absent:
        return f"Tables are missing: {', '.join(absent)}."
    if not covered.all:
        return "Nothing says what was read: the table coverage is empty."
    if blind:
        return f"Nothing says what was read of {', '.join(sorted(blind)[:5])}{' and others' if len(blind) > 5 else ''}."
    return ""


def _sentences(
    state: str, faults: Mapping[str, int], possible: int, lack: str, why: list[str], period: Period | None
) -> Iterator[str]:
    """Yields the verdict as sentences. `lack`: why the history cannot be judged; `why`: why it is not complete."""
    if period is not None:
        yield f"Of the time {period.words}:"
    if state == "clean":
        yield "No partition or active task had two owners, no fenced coordinator wrote, no epoch went back,"
        yield "every record was read."
    if faults:
        listed = ", ".join(f"{name} ({n})" for name, n in faults.items())
        yield f"{listed[:1].upper()}{listed[1:]}."
    if possible:
        yield f"{possible} more may have been: records are missing, and what they said is not known."
    yield from [lack] if lack else why
    if state == "unknown" and not lack:
        yield "What is there shows no fault."
