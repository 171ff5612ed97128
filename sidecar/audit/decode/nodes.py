"""Columns of Avro values of one schema, nested as the schema is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LONG = pa.int64()


class Unfit(Exception):
    """A value or schema cannot be read by column. It may still be readable value by value."""


@lru_cache(maxsize=256)
def number(n: int) -> Any:
    """Returns `n` as an Arrow scalar. For a plain number pyarrow would look up the type, and with it an optional
    package, in each call."""
    return pa.scalar(n, LONG)


@dataclass(slots=True)
class Longs:
    values: Any


@dataclass(slots=True)
class Flags:
    values: Any


@dataclass(slots=True)
class Texts:
    """Strings (`text`) or bytes, as an Arrow array of binary values."""

    values: Any
    text: bool


@dataclass(slots=True)
class Lists:
    count: Any
    items: Node


@dataclass(slots=True)
class Maybe:
    """Nullable values. `valid`: a flag for each; `there`: only those that are not null."""

    valid: Any
    there: Node

    def places(self) -> Any:
        """Returns the index into `there` of each value that is not null."""
        return pc.subtract(pc.cumulative_sum(self.valid.cast(LONG)), 1)


@dataclass(slots=True)
class Fields:
    by_name: dict[str, Node]


Node = Longs | Flags | Texts | Lists | Maybe | Fields


def offsets_of(count: Any) -> Any:
    return pa.concat_arrays([pa.array([0], LONG), pc.cumulative_sum(count)]).cast(pa.int32())
