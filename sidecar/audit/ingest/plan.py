"""Batches, planned and recorded, and the offsets that the next one reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.audit.source.options import Ranges, limited, starting_offsets
from sidecar.audit.tables.layers import BRONZE


@dataclass
class Plan:
    """A batch's plan. `ranges`: offsets to read of each partition; `lost`: offsets before them that are never read;
    `more`: `max_records` left some for the next batch."""

    batch: int
    source: str
    identity: str
    ranges: Ranges
    lost: Ranges = field(default_factory=dict)
    more: bool = False


@dataclass
class Batch:
    """A finished batch, as it is recorded. `ranges`: the offsets that it read; `lost`: those before them that were
    never read, from 0 if it was the first of its partition, and an empty range where compaction had overtaken it;
    `position`: next offset of each partition; `claims`: the last claim of each partition, offset and owner epoch;
    `schemas`: all that were ever seen in the topic."""

    number: int
    source: str
    identity: str
    incarnation: int
    ranges: Ranges
    lost: Ranges
    position: dict[int, int]
    counts: dict[str, int]
    claims: dict[int, tuple[int, int]]
    schemas: dict[str, str]
    done_ms: int = 0
    more: bool = False
    """As in the plan."""
    new: bool = True
    """False if there was nothing to read: this is then the previous batch."""

    def cuts(self, before: Batch) -> Ranges:
        """Returns the offsets right before this batch's that were never read."""
        late = {p: (0, begin) for p, (begin, _) in self.ranges.items() if begin and p not in before.position}
        return {**late, **self.lost}

    @property
    def records(self) -> int:
        return self.counts.get(BRONZE.name, 0)


NOTHING = Batch(-1, "", "", 0, {}, {}, {}, {}, {}, {}, new=False)
"""The last batch of a lake that has none."""


def plan_ranges(
    before: Batch, bounds: Mapping[int, tuple[int, int]], options: Mapping[str, str]
) -> tuple[Ranges, Ranges]:
    """Returns the offsets to read of each partition, and those never to be read: gone already, or before the start."""
    starts = starting_offsets(options, bounds if before.number < 0 else None)
    ranges, lost = {}, {}
    for p, (low, high) in bounds.items():
        have = before.position.get(p)
        begin = max(low, starts.get(p, low) if have is None else have)
        if (have or 0) < begin <= high:  # also of a partition that has no record any more
            lost[p] = (have or 0, begin)
        if begin < high:
            ranges[p] = (begin, high)
    return limited(ranges, int(options.get("max_records", 0))), lost
