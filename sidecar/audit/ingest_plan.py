"""Batches, planned and recorded, and the offsets that the next one reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.errors import Misused, number
from sidecar.audit.layers import BRONZE

Ranges = dict[int, tuple[int, int]]


@dataclass
class Plan:
    """A batch's plan. `ranges`: offsets to read of each partition; `lost`: offsets before them that are never read."""

    batch: int
    source: str
    identity: str
    ranges: Ranges
    lost: Ranges = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Plan:
        return cls(said["batch"], said["source"], said["identity"], _ranges(said["ranges"]), _ranges(said["lost"]))


@dataclass
class Batch:
    """A finished batch, as it is recorded. `ranges`: the offsets that it read; `lost`: those before them that were
    never read, from 0 if it was the first of its partition; `position`: next offset of each partition; `claims`: the
    last claim of each partition, offset and owner epoch; `schemas`: all that were ever seen in the topic."""

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
    new: bool = True
    """False if there was nothing to read: this is then the previous batch."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Batch:
        plain = dict(said)
        plain["ranges"], plain["lost"] = _ranges(said["ranges"]), _ranges(said["lost"])
        plain["position"] = {int(p): n for p, n in said["position"].items()}
        plain["claims"] = {int(p): (c[0], c[1]) for p, c in said["claims"].items()}
        plain.pop("stream", None)  # of an earlier version
        return cls(**plain)

    def cuts(self, before: Batch) -> Ranges:
        """Returns the offsets right before this batch's that were never read."""
        late = {p: (0, begin) for p, (begin, _) in self.ranges.items() if begin and p not in before.position}
        return {**late, **self.lost}

    @property
    def records(self) -> int:
        return self.counts.get(BRONZE.name, 0)


NOTHING = Batch(-1, "", "", 0, {}, {}, {}, {}, {}, {}, new=False)
"""The last batch of a lake that has none."""


def _ranges(said: Mapping[Any, Sequence[int]]) -> Ranges:
    return {int(p): (int(r[0]), int(r[1])) for p, r in said.items()}


def starting_offsets(options: Mapping[str, str]) -> dict[int, int]:
    """Returns the first offset to read of each partition; one that is missing begins at its first record. Raises
    Misused."""
    said = options.get("starting_offsets", "earliest")
    if said == "earliest":
        return {}
    try:
        return {int(p): int(n) for p, n in json.loads(said).items()}
    except (ValueError, AttributeError, TypeError):
        raise Misused(
            f'the option starting_offsets is earliest, or {{"partition": offset}} in JSON, not {said!r}'
        ) from None


def plan_ranges(
    before: Batch, bounds: Mapping[int, tuple[int, int]], options: Mapping[str, str]
) -> tuple[Ranges, Ranges]:
    """Returns the offsets to read of each partition, and those never to be read: gone already, or before the start."""
    starts = starting_offsets(options)
    ranges, lost = {}, {}
    for p, (low, high) in bounds.items():
        have = before.position.get(p)
        begin = max(low, starts.get(p, low) if have is None else have)
        if begin > (have or 0) and (have is not None or begin < high):
            lost[p] = (have or 0, begin)
        if begin < high:
            ranges[p] = (begin, high)
    return limited(ranges, number(options, "max_records", 0)), lost


def limited(ranges: Ranges, most: int) -> Ranges:
    """Returns about `most` offsets of all these ranges, from each partition in proportion to its own. 0: no limit."""
    total = sum(b - a for a, b in ranges.values())
    if not most or total <= most:
        return ranges
    return {p: (a, min(b, a + max(1, (b - a) * most // total))) for p, (a, b) in ranges.items()}
