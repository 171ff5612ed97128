"""Completeness of the history: one rule for the command, the page and the metrics.

A state partition's history is complete if it was read from its first offset on, nothing was lost, no revision is
missing, and it is whole (tables/gold.py). A committed transaction takes one offset without a record. More such offsets
in a row come from an aborted transaction or from removed records. The log does not show which, so that history does not
count as complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

COLUMNS = (
    *("read_from_offset", "lost", "missing", "without_record", "longest_hole"),
    *("whole_from_offset", "whole_from_ms"),
)
"""Columns of the table coverage that completeness depends on."""


@dataclass(frozen=True)
class Completeness:
    """Completeness of one or more state partitions. `not_read`: offsets before those where reading began; `lost`: those
    that were gone before they were read; `missing`: values that compaction removed, by their revisions;
    `without_record`: other offsets that have no record; `not_whole`: state partitions of which compaction may have
    removed records without a trace; `longest_hole`: offsets in a row that a committed transaction does not explain.
    `since_ms`: the history is complete from then on, if `since_known` and not complete."""

    not_read: int = 0
    lost: int = 0
    missing: int = 0
    without_record: int = 0
    not_whole: int = 0
    longest_hole: int = 0
    since_ms: int | None = None
    since_known: bool = True

    @property
    def complete(self) -> bool:
        return not (self.not_read or self.lost or self.missing or self.not_whole or self.longest_hole)


def completeness(row: Mapping[str, Any]) -> Completeness:
    """Returns the completeness in a row of the table coverage."""
    whole, hole = row["whole_from_offset"], row["longest_hole"]
    counted = Completeness(
        not_read=row["read_from_offset"],
        lost=row["lost"],
        missing=row["missing"],
        without_record=row["without_record"],
        not_whole=int(whole != 0),
        longest_hole=hole if hole > 1 and whole == 0 else 0,
    )
    if counted.complete:
        return counted
    since = row["whole_from_ms"] if whole else None
    return replace(counted, since_ms=since, since_known=since is not None)


def combined(parts: Iterable[Completeness]) -> Completeness:
    """Returns the completeness of all parts: `since_ms` is the latest of theirs."""
    every = list(parts)
    summed = ("not_read", "lost", "missing", "without_record", "not_whole")
    return Completeness(
        **{name: sum(getattr(s, name) for s in every) for name in summed},
        longest_hole=max((s.longest_hole for s in every), default=0),
        since_ms=max((s.since_ms for s in every if s.since_ms is not None), default=None),
        since_known=all(s.since_known for s in every),
    )


def reasons(s: Completeness, unreadable: int = 0) -> list[str]:
    """Returns the reasons why the history is not complete, a sentence each."""
    out = []
    if s.not_read:
        out.append(
            f"Reading began late: {s.not_read:,} offsets before that were never read, and who was a member then"
            " may still be one."
        )
    if s.lost:
        out.append(f"{s.lost:,} offsets were gone from the topic before they were read: run it more often.")
    if s.missing:
        out.append(f"Compaction took {s.missing:,} records before they were read, as the revisions of others tell.")
    if s.not_whole and not (s.not_read or s.lost or s.missing):
        out.append(
            f"{s.without_record:,} offsets have no record. Transactions may have taken them, or compaction may have"
            " removed all records of a group that had ended: the log does not tell which."
        )
    if s.longest_hole:
        out.append(
            f"{s.longest_hole:,} offsets in a row have no record, although compaction had not come there. A transaction"
            " that was aborted leaves that, and so does somebody who removes records: the log does not tell which."
        )
    if unreadable:
        out.append(f"{unreadable:,} records cannot be read: see the table unreadable. What they said is not known.")
    return out
