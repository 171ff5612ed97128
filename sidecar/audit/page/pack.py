"""Compact columns: numbers for texts, differences for what rises, one value for what most rows have.

Any query is packed like that. Its columns have gold's names, but for `g`: number of the group, `p`: of the partition or
task in the group, `m`: of the member in the group; and those of a span: `t`: start, `d`: length, `o` and `e`: offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

NONE = -1
"""Null wherever a number is expected: no time, offset, epoch or count in gold's tables is below zero."""
RISING = ("g", "p", "t", "o")
"""Columns of which the differences from row to row are kept: the rows are in their order."""
SPARE = ("from_why", "to_why")
"""Optional texts: the rebalance also has the reason."""


class Pack:
    """Packs queries. `texts`: all texts of the page, by their number; `room`: how many characters optional texts may
    add to them, beyond which they are left out."""

    def __init__(self, db: Any, room: int) -> None:
        self.texts: list[str] = []
        self.left_out = 0
        self._db, self._room = db, room
        self._numbers: dict[str, int] = {}

    def __call__(self, query: str) -> dict[str, Any]:
        rows = self._db.sql(query).to_arrow_table()
        return {"rows": len(rows), "columns": {n: self._packed(n, rows[n]) for n in rows.column_names}}

    def _packed(self, name: str, column: Any) -> list[int] | dict[str, int]:
        """Returns the values, or the most common one and by row those that differ from it."""
        of_texts = pa.types.is_string(column.type)
        numbers = self._of_texts(name, column) if of_texts else column.cast(pa.int64()).to_pylist()
        values: list[int] = [NONE if v is None else v for v in numbers]
        if name in RISING:
            values = [value - before for before, value in pairwise((0, *values))]
        ((common, count),) = Counter(values).most_common(1) or ((NONE, 0),)
        if count * 5 < len(values) * 4 or not values:
            return values
        return {"": common} | {str(n): v for n, v in enumerate(values) if v != common}

    def _of_texts(self, name: str, column: Any) -> list[int | None]:
        coded = column.combine_chunks().dictionary_encode()
        numbers = [self._number(text, name in SPARE) for text in coded.dictionary.to_pylist()]
        values = [None if code is None else numbers[code] for code in coded.indices.to_pylist()]
        self.left_out += values.count(NONE)
        return values

    def _number(self, text: str, spare: bool) -> int:
        if spare and text not in self._numbers:
            if self._room < len(text):
                return NONE
            self._room -= len(text)
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


def split_budget(wanted: Sequence[int], budget: int) -> list[int]:
    """Returns each one's share of the budget: small wishes are granted in full, the rest is split evenly."""
    granted = [0] * len(wanted)
    left = budget
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    for done, n in enumerate(order):
        granted[n] = min(wanted[n], left // (len(order) - done))
        left -= granted[n]
    return granted
