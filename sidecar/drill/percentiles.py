"""Percentiles of measured times, as drills and benchmarks report them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the lowest of the values that is not exceeded by this share of them (nearest rank)."""
    rank = math.ceil(round(share * len(values), 9))
    return sorted(values)[max(rank, 1) - 1]
