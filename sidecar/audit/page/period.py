"""Limit of a page to a period: of each table only the rows that touch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

SINGLE = ("ms", "log_ms")
"""Time columns of single moments. Spans have `from_ms`, and `to_ms` or `settled_ms`."""


@dataclass(frozen=True)
class Period:
    """A period in Unix ms, both ends included. `since_ms` 0: from the beginning on."""

    since_ms: int
    until_ms: int

    @property
    def words(self) -> str:
        return f"{f'from {stamp(self.since_ms)} ' if self.since_ms else ''}until {stamp(self.until_ms)}"


def stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def within(tables: Mapping[str, Any], period: Period) -> dict[str, Any]:
    """Returns the tables with only the rows that touch the period. The table coverage stays as it is."""
    return {name: _touching(table, period) for name, table in tables.items()}


def _touching(table: Any, period: Period) -> Any:
    names = table.column_names
    single = next((n for n in SINGLE if n in names), None)
    if single is not None:
        moment = table[single]
        return table.filter(pc.and_(pc.greater_equal(moment, period.since_ms), pc.less_equal(moment, period.until_ms)))
    if "from_ms" not in names:
        return table
    ends = table["to_ms" if "to_ms" in names else "settled_ms"]
    goes_on = pc.is_null(ends)
    if "superseded" in names:
        goes_on = pc.and_(goes_on, pc.invert(table["superseded"]))
    lasts = pc.or_(goes_on, pc.fill_null(pc.greater_equal(ends, period.since_ms), False))
    began_in = pc.greater_equal(table["from_ms"], period.since_ms)
    return table.filter(pc.and_(pc.less_equal(table["from_ms"], period.until_ms), pc.or_(began_in, lasts)))
