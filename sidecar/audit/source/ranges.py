"""Ranges of offsets that a reader takes from a source, and the options that limit them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sidecar.audit.errors import Misused
from sidecar.audit.source.dump import Offset, PartitionNumber

Ranges = dict[int, tuple[int, int]]
"""State partition -> its first offset, and the one behind its last."""


def starting_offsets(options: Mapping[str, str], bounds: Mapping[int, tuple[int, int]] | None = None) -> dict[int, int]:
    """Returns the first offset to read of each partition; one that is missing begins at its first record. Raises
    Misused, also for an offset that is not within the source's `bounds`."""
    text = options.get("starting_offsets", "earliest")
    if text == "earliest":
        return {}
    try:
        starts = msgspec.json.decode(text, type=dict[PartitionNumber, Offset])
    except msgspec.DecodeError as exc:
        form = 'earliest, or {"partition": offset} in JSON'
        raise Misused(f"the option starting_offsets is {form}, not {text!r} ({exc})") from None
    for p, offset in starts.items():
        if bounds is not None and (p not in bounds or offset > bounds[p][1]):
            why = f"ends at {bounds[p][1]}" if p in bounds else f"is none of {', '.join(map(str, sorted(bounds)))}"
            raise Misused(f"the option starting_offsets begins at offset {offset} of partition {p}, but that {why}")
    return starts


def limited(ranges: Ranges, most: int) -> Ranges:
    """Returns about `most` offsets of all these ranges, from each partition in proportion to its own. 0: no limit."""
    total = sum(b - a for a, b in ranges.values())
    if not most or total <= most:
        return ranges
    return {p: (a, min(b, a + max(1, (b - a) * most // total))) for p, (a, b) in ranges.items()}
