"""Compact columns: numbers for texts, differences for times, one bar for short neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NONE = -1
"""Null wherever a number is expected: no time, offset, epoch or count in gold's tables is below zero."""


Row = Mapping[str, Any]


class Texts:
    """Numbers of texts. `room`: how many characters `spare` may add before it returns NONE."""

    def __init__(self, room: int) -> None:
        self.all: list[str] = []
        self.left_out = 0
        self._room = room
        self._number: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        if text is None:
            return NONE
        number = self._number.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number

    def spare(self, text: str | None) -> int:
        """Returns the number of an optional text, or NONE if no room is left: the rebalance also has the reason."""
        if text is not None and text not in self._number:
            if self._room < len(text):
                self.left_out += 1
                return NONE
            self._room -= len(text)
        return self(text)


@dataclass(frozen=True)
class Rows:
    """A gold table as columns of Python values."""

    count: int
    columns: Mapping[str, Sequence[Any]]

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def each(self, *names: str) -> Iterable[tuple[Any, ...]]:
        return zip(*(self.columns[n] for n in names), strict=True)

    def each_row(self) -> Iterator[Row]:
        return (dict(zip(self.columns, values, strict=True)) for values in self.each(*self.columns))

    def having(self, **columns: Sequence[Any]) -> Rows:
        return Rows(self.count, {**self.columns, **columns})

    def with_more(self, *others: Rows) -> Rows:
        """Returns these rows and those of others, in these columns; columns that another lacks are null."""
        more = [o for o in others if o.count]
        if not more:
            return self
        columns = {
            n: [*v, *(x for o in more for x in o.columns.get(n, [None] * o.count))] for n, v in self.columns.items()
        }
        return Rows(self.count + sum(o.count for o in more), columns)


def rows(table: Any, names: Iterable[str], where: Mapping[str, Sequence[Any]] | None = None) -> Rows:
    """Returns a table's columns. `where`: keeps rows in which each of these columns has one of its values. Without a
    table there are no rows."""
    if table is None:
        return Rows(0, {n: [] for n in names})
    for name, values in (where or {}).items():
        column = table.column(name)
        table = table.filter(pc.is_in(column, value_set=pa.array(values, type=column.type)))
    return Rows(table.num_rows, {n: table.column(n).to_pylist() for n in names})


def deltas(values: Iterable[int]) -> list[int]:
    """Returns the first value, and then each one's difference from the one before."""
    return [value - before for before, value in pairwise((0, *values))]


def duration(begin: int, end: int | None) -> int:
    """Returns `end - begin`, NONE without an end. At least 0, because clocks may go back between two records."""
    return NONE if end is None else max(end - begin, 0)


def split_budget(wanted: Sequence[int], budget: int) -> list[int]:
    """Returns each one's share of the budget: small wishes are granted in full, the rest is split evenly."""
    granted = [0] * len(wanted)
    left = budget
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    for done, n in enumerate(order):
        granted[n] = min(wanted[n], left // (len(order) - done))
        left -= granted[n]
    return granted


@dataclass(slots=True)
class Bar:
    """An interval, or if `many` > 1 several short ones of a partition, drawn as one. `row`: the first one's row."""

    begin: int
    end: int | None
    row: int
    many: int = 1


def merged(lanes: list[list[Bar]], most: int, until: int) -> tuple[list[list[Bar]], int]:
    """Merges short neighbours, and ever longer ones, until all lanes together have at most `most` bars.

    Also returns the length below which bars were merged: 0 if none was. A lane never becomes empty."""
    grain = 0
    most = max(most, len(lanes))
    while sum(map(len, lanes)) > most:
        grain = max(grain * 4, 1000)
        lanes = [_coarser(lane, grain, until) for lane in lanes]
    return lanes, grain


def _coarser(lane: list[Bar], grain: int, until: int) -> list[Bar]:
    out: list[Bar] = []
    for bar in lane:
        last = out[-1] if out else None
        near = last is not None and bar.begin - (until if last.end is None else last.end) < grain
        if last is not None and near and _short(last, grain, until) and _short(bar, grain, until):
            ends = (last.end, bar.end)
            last.end = None if None in ends else max(e for e in ends if e is not None)
            last.many += bar.many
        else:
            out.append(bar)
    return out


def _short(bar: Bar, grain: int, until: int) -> bool:
    return (until if bar.end is None else bar.end) - bar.begin < grain
