"""What was read of Avro values: columns that point into the bytes, and Arrow arrays made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LONG = pa.int64()


@dataclass(slots=True)
class Longs:
    values: Any

    def pick(self, order: Any) -> Longs:
        return Longs(self.values.take(order))


@dataclass(slots=True)
class Flags:
    values: Any

    def pick(self, order: Any) -> Flags:
        return Flags(self.values.take(order))


@dataclass(slots=True)
class Spans:
    """Strings and bytes: where they begin, and how long they are."""

    start: Any
    size: Any
    text: bool

    def pick(self, order: Any) -> Spans:
        return Spans(self.start.take(order), self.size.take(order), self.text)


@dataclass(slots=True)
class Texts:
    """Strings and bytes, as Arrow's."""

    values: Any
    text: bool

    def pick(self, order: Any) -> Texts:
        return Texts(self.values.take(order), self.text)


@dataclass(slots=True)
class Runs:
    """Arrays of numbers: where they begin, and how many they are."""

    start: Any
    count: Any

    def pick(self, order: Any) -> Runs:
        return Runs(self.start.take(order), self.count.take(order))


@dataclass(slots=True)
class Lists:
    count: Any
    items: Node

    def pick(self, order: Any) -> Lists:
        begins = pc.subtract(pc.cumulative_sum(self.count), self.count)
        count = self.count.take(order)
        return Lists(count, self.items.pick(spread(begins.take(order), count)))


@dataclass(slots=True)
class Maybe:
    """`there` holds only those that are not null."""

    valid: Any
    there: Node

    def pick(self, order: Any) -> Maybe:
        valid = self.valid.take(order)
        return Maybe(valid, self.there.pick(self.places().take(order).filter(valid)))

    def places(self) -> Any:
        """Of each that is not null: which of `there` it is."""
        return pc.subtract(pc.cumulative_sum(self.valid.cast(LONG)), 1)


@dataclass(slots=True)
class Fields:
    by_name: dict[str, Node]

    def pick(self, order: Any) -> Fields:
        return Fields({n: f.pick(order) for n, f in self.by_name.items()})


Node = Longs | Flags | Spans | Texts | Runs | Lists | Maybe | Fields


def offsets_of(count: Any) -> Any:
    return pa.concat_arrays([pa.array([0], LONG), pc.cumulative_sum(count)]).cast(pa.int32())


def spread(begin: Any, count: Any) -> Any:
    """For each run the numbers from `begin` on, `count` of them, one run after the other."""
    offsets = offsets_of(count)
    total = offsets[-1].as_py()
    runs = pa.ListArray.from_arrays(offsets, pa.nulls(total))
    shift = pc.subtract(begin, offsets.slice(0, len(begin)).cast(LONG))
    return pc.add(shift.take(pc.list_parent_indices(runs)), pa.arange(0, total, 1))


def join(parts: Sequence[Any]) -> Any:
    """All parts are of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Fields):
        return Fields({n: join([p.by_name[n] for p in parts]) for n in first.by_name})
    if isinstance(first, Lists):
        return Lists(_cat(parts, "count"), join([p.items for p in parts]))
    if isinstance(first, Maybe):
        return Maybe(_cat(parts, "valid"), join([p.there for p in parts]))
    if isinstance(first, Spans):
        return Spans(_cat(parts, "start"), _cat(parts, "size"), first.text)
    if isinstance(first, Runs):
        return Runs(_cat(parts, "start"), _cat(parts, "count"))
    return type(first)(_cat(parts, "values"))


def _cat(parts: Sequence[Any], name: str) -> Any:
    return pa.concat_arrays([getattr(p, name) for p in parts])
