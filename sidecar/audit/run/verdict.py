"""The verdict of a lake: its findings in numbers, and whether its history is complete."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from sidecar.audit.gold.completeness import Completeness, combined, completeness, reasons
from sidecar.audit.lake.lake import Lake
from sidecar.audit.moments import shown
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE

PUBLISHED = {"not_whole": "torn", "longest_hole": "wide", "since_ms": "complete_since_ms"}
"""Fields of `Completeness` whose name in a verdict's row is another one."""


@dataclass(frozen=True)
class Verdict:
    """Findings of the whole lake, in numbers. `proven` and `possible`: second owners; `stale_writes`: records of fenced
    coordinators; `went_back`: epochs that certainly went back; `unreadable`: records that cannot be decoded;
    `completeness`: completeness of the history (completeness.py); `unknown`: state partitions that were read and of
    which gold has no coverage; `gold_batch`, `last_batch`: the last batch of all tables of gold, and of bronze."""

    proven: int
    possible: int
    stale_writes: int
    went_back: int
    unreadable: int
    completeness: Completeness
    unknown: int
    gold_batch: int
    last_batch: int
    groups: int
    records: int

    @property
    def findings(self) -> int:
        return self.proven + self.stale_writes + self.went_back

    @property
    def lost(self) -> int:
        """Offsets that were never read."""
        return self.completeness.lost + self.completeness.not_read

    @property
    def complete(self) -> bool:
        return self.completeness.complete and not (self.lacks or self.unreadable)

    @property
    def lacks(self) -> str:
        """A sentence on the batches or state partitions that gold lacks; "" if it lacks none."""
        if self.gold_batch == self.last_batch:
            unknown = f"Of {self.unknown} state partitions no record was there, and nothing tells what they had."
            return unknown if self.unknown else ""
        first, last = self.gold_batch + 1, self.last_batch
        batches = f"batch {last}" if first == last else f"the batches {first} to {last}"
        return f"Gold lacks {batches}, so this is not all: run again, unless a run is at it."

    def row(self) -> dict[str, Any]:
        """Returns the verdict as one row, for scripts."""
        fields = asdict(self)
        known = {PUBLISHED.get(n, n): v for n, v in fields.pop("completeness").items() if n != "since_known"}
        return {**fields, **known, "complete": self.complete}

    def lines(self) -> list[str]:
        """Returns the verdict as sentences, for users."""
        known = self.completeness
        out = [
            f"{self.records:,} records of {self.groups:,} groups.",
            f"Second owners: {self.proven} proven, {self.possible} possible. Writes of fenced coordinators:"
            f" {self.stale_writes}. Epochs that went back: {self.went_back}.",
        ]
        if self.lacks:
            out.append(self.lacks)
        elif known.complete:
            out.append("Every record is there, from the first one on.")
            if known.without_record:
                taken = f"{known.without_record:,} offsets have no record"
                out.append(f"{taken}: a transaction that is committed takes one.")
        elif known.since_ms is None or not known.since_known:
            out.append("Since when the history is complete cannot be told yet.")
        else:
            out.append(f"The history is complete since {shown(known.since_ms)}.")
        return out + reasons(known, self.unreadable)


def verdict(lake: Lake) -> Verdict:
    """Returns the lake's verdict. Reads little: findings, and a row for each group.

    Gold's batch is read first and bronze's last: if they are the same, no table of gold has changed meanwhile."""
    gold_batch = lake.done(GOLD.values())
    overlaps = lake.read_arrow(GOLD["second_owners"], ["grade"]).column("grade").to_pylist()
    covered = lake.read_arrow(GOLD["coverage"]).to_pylist()
    back = lake.read_arrow(GOLD["rebalances"], ["grade"], pc.field("went_back")).column("grade").to_pylist()
    partitions = {c["state_partition"] for c in covered if c["scope"] == "partition"}
    return Verdict(
        proven=overlaps.count("proven"),
        possible=overlaps.count("possible"),
        stale_writes=sum(f.rows for f in lake.files(GOLD["stale_writes"])),
        went_back=back.count("proven"),
        unreadable=sum(f.rows for f in lake.files(GOLD["unreadable"])),
        completeness=combined(completeness(c) for c in covered if c["scope"] == "partition"),
        unknown=len(lake.batch().position.keys() - partitions),
        gold_batch=gold_batch,
        last_batch=lake.committed(BRONZE),
        groups=len({c["group_id"] for c in covered if c["scope"] == "group" and c["group_id"]}),
        records=sum(f.rows for f in lake.files(BRONZE)),
    )
