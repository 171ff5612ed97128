"""A batch, as the lake records it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.audit.tables.layers import BRONZE

Ranges = dict[int, tuple[int, int]]
"""State partition -> its first offset, and the one behind its last."""


@dataclass
class Batch:
    """A batch: planned, then begun, and recorded when it is done. `ranges`: the offsets that it reads; `lost`: those
    before them that are never read, from 0 if it is the first of its partition, and an empty range where compaction had
    overtaken it; `position`: next offset of each partition; `counts`: rows in each table; `claims`: the last claim of
    each partition, offset and owner epoch; `schemas`: all that were ever seen in the topic. Maintenance keeps of past
    batches neither `position` nor what follows `counts`."""

    number: int
    source: str = ""
    identity: str = ""
    incarnation: int = 0
    ranges: Ranges = field(default_factory=dict)
    lost: Ranges = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    claims: dict[int, tuple[int, int]] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)
    done_ms: int = 0
    more: bool = False
    """Whether `max_records` left some for the next batch."""
    new: bool = True
    """False if there was nothing to read: this is then the previous batch."""

    def cuts(self, before: Batch) -> Ranges:
        """Returns the offsets right before this batch's that were never read."""
        late = {p: (0, begin) for p, (begin, _) in self.ranges.items() if begin and p not in before.position}
        return {**late, **self.lost}

    @property
    def records(self) -> int:
        return self.counts.get(BRONZE.name, 0)


NOTHING = Batch(-1, new=False)
"""The last batch of a lake that has none."""
