"""Ranges of offsets that a reader takes from a source, and the options that limit them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sidecar.audit.errors import Misused

Ranges = dict[int, tuple[int, int]]
"""State partition -> its first offset, and the one behind its last."""


def starting_offsets(options: Mapping[str, str]) -> dict[int, int]:
    """Returns the first offset to read of each partition; one that is missing begins at its first record. Raises
    Misused."""
    text = options.get("starting_offsets", "earliest")
    if text == "earliest":
        return {}
    try:
        return {int(p): int(n) for p, n in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise Misused(
            f'the option starting_offsets is earliest, or {{"partition": offset}} in JSON, not {text!r}'
        ) from None


def limited(ranges: Ranges, most: int) -> Ranges:
    """Returns about `most` offsets of all these ranges, from each partition in proportion to its own. 0: no limit."""
    total = sum(b - a for a, b in ranges.values())
    if not most or total <= most:
        return ranges
    return {p: (a, min(b, a + max(1, (b - a) * most // total))) for p, (a, b) in ranges.items()}
