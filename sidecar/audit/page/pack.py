"""Compact columns: numbers for texts, differences for times, one bar for short neighbours.

Columns have gold's names, but for those of a span: `t`: starts, `d`: lengths, `o` and `e`: offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

NONE = -1
"""Null wherever a number is expected: no time, offset, epoch or count in gold's tables is below zero."""
Row = Any
"""A row of a table of gold, a named tuple of its columns."""


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

    def of(self, rows: Sequence[Row], *names: str) -> dict[str, list[int]]:
        """Packs columns of texts."""
        return {name: list(map(self, map(attrgetter(name), rows))) for name in names}

    def spare_of(self, rows: Sequence[Row], *names: str) -> dict[str, list[int]]:
        """Packs columns of optional texts."""
        return {name: list(map(self.spare, map(attrgetter(name), rows))) for name in names}


def numbers(rows: Sequence[Row], *names: str) -> dict[str, list[int]]:
    """Packs columns of numbers and flags."""
    columns = ((name, map(attrgetter(name), rows)) for name in names)
    return {name: [NONE if value is None else int(value) for value in column] for name, column in columns}


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
    """A row's span of time, or if `many` > 1 several short ones of a partition, drawn as one. `row`: the first one's
    row."""

    begin: int
    end: int | None
    row: Row
    many: int = 1

    def lasts(self, ms: int) -> bool:
        return self.end is None or self.end > ms

    def shorter(self, grain: int, until: int) -> bool:
        return (until if self.end is None else self.end) - self.begin < grain


def bar(row: Row) -> Bar:
    return Bar(row.from_ms, row.to_ms, row)


def spans(lanes: Sequence[Sequence[Bar]]) -> dict[str, Any]:
    """Packs bars, by lane and time; differences restart at each lane."""
    bars = [b for lane in lanes for b in lane]
    return {
        "t": [v for lane in lanes for v in deltas(b.begin for b in lane)],
        "d": [duration(b.begin, b.end) for b in bars],
        "o": [v for lane in lanes for v in deltas(b.row.from_offset for b in lane)],
        "e": [duration(b.row.from_offset, b.row.to_offset) for b in bars],
    }


def merged(lanes: list[list[Bar]], most: int, until: int) -> tuple[list[list[Bar]], int]:
    """Merges short neighbours, and ever longer ones, until all lanes together have at most `most` bars.

    Also returns the length below which bars were merged: 0 if none was. A lane never becomes empty."""
    grain = 0
    most = max(most, sum(map(bool, lanes)))
    while sum(map(len, lanes)) > most:
        grain = max(grain * 4, 1000)
        lanes = [_coarser(lane, grain, until) for lane in lanes]
    return lanes, grain


def _coarser(lane: list[Bar], grain: int, until: int) -> list[Bar]:
    out: list[Bar] = []
    for b in lane:
        last = out[-1] if out else None
        near = last is not None and b.begin - (until if last.end is None else last.end) < grain
        if last is not None and near and last.shorter(grain, until) and b.shorter(grain, until):
            last.end = None if last.end is None or b.end is None else max(last.end, b.end)
            last.many += b.many
        else:
            out.append(b)
    return out
