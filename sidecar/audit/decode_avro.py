"""Avro binary read by column: Arrow's kernels walk many values at once, field by field.

The positions of all bytes that end a number are known beforehand, so a number, or a run of numbers, is found in one
step. What is rare (a value in several blocks, a very long array, a damaged value) is only marked in `Walk.bad`; whoever
calls reads those values one by one. A schema with a type that is not here raises `Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode_nodes import Fields, Flags, Lists, Longs, Maybe, Node, Runs, Spans, join

Ints = Any
"""An Arrow array of 64-bit integers."""
LONG_BYTES = 9
"""A number that takes more is left to the reader of single values."""
MOST_ITEMS = 256
"""Items of an array are walked one after the other, in all values at once; longer ones are read singly."""
LONG, BYTE = pa.int64(), pa.uint8()


class Unfit(Exception):
    """This cannot be read by column. It may still be readable value by value."""


@lru_cache(maxsize=256)
def number(n: int) -> Any:
    """A plain number would have its type looked for in each call, and an optional package of pyarrow's with it."""
    return pa.scalar(n, LONG)


class Pool:
    """The bytes of many values, one after the other."""

    def __init__(self, data: Any) -> None:
        self.size = len(data)
        # One byte more may be looked at, although no value goes so far.
        self.data = pa.concat_arrays([data, pa.array([0], BYTE)])
        ends = pc.less(self.data, pa.scalar(128, BYTE))
        self.last = pc.indices_nonzero(ends).cast(LONG)
        """Positions of the bytes that end a number."""
        self.rank = pc.subtract(pc.cumulative_sum(ends.cast(pa.int32())), ends.cast(pa.int32()))
        """How many of them lie before each position."""

    def end_of(self, start: Ints, nth: Ints | int) -> Ints:
        """Where the `nth` number from there ends."""
        at = pc.add(self.rank.take(start).cast(LONG), number(nth) if isinstance(nth, int) else nth)
        return self.last.take(pc.min_element_wise(at, number(len(self.last) - 1)))

    def low_bits(self, at: Ints) -> Ints:
        return pc.bit_wise_and(self.data.take(at), pa.scalar(127, BYTE)).cast(LONG)

    def numbers(self, start: Ints, size: Ints) -> Ints:
        """The numbers that begin there and take that many bytes, at most nine."""
        found = self.low_bits(start)
        for k in range(1, pc.max(size).as_py() or 0):
            longer = pc.greater(size, number(k))
            more = pc.shift_left(self.low_bits(pc.add(start.filter(longer), number(k))), number(7 * k))
            found = pc.replace_with_mask(found, longer, pc.bit_wise_or(found.filter(longer), more))
        return pc.bit_wise_xor(pc.shift_right(found, number(1)), pc.negate(pc.bit_wise_and(found, number(1))))


@dataclass(slots=True)
class Of:
    """To which value each position belongs, and where that one ends."""

    who: Ints
    end: Ints

    def filter(self, mask: Any) -> Of:
        return Of(self.who.filter(mask), self.end.filter(mask))


@dataclass(slots=True)
class Walk:
    """Reads the values [start, end) of the pool, all by one schema."""

    pool: Pool
    start: Ints
    end: Ints
    wrong: list[Ints] = field(default_factory=list)

    def read(self, step: Step) -> Node:
        found: Node = step(self, self.start, self.all())[0]
        return found

    def all(self) -> Of:
        return Of(pa.arange(0, len(self.start), 1), self.end)

    @property
    def bad(self) -> Any:
        """Flags the values that are to be read singly. None: there is none."""
        if not self.wrong:
            return None
        return pc.is_in(pa.arange(0, len(self.start), 1), pa.concat_arrays(self.wrong))

    def mark(self, wrong: Any, of: Of) -> bool:
        if not pc.any(wrong).as_py():
            return False
        self.wrong.append(of.who.filter(wrong))
        return True

    def long(self, at: Ints, of: Of) -> tuple[Ints, Ints]:
        last = self.pool.end_of(at, 0)
        size = pc.add(pc.subtract(last, at), number(1))
        wrong = pc.or_(pc.greater_equal(last, of.end), pc.greater(size, number(LONG_BYTES)))
        if self.mark(wrong, of):
            size = pc.if_else(wrong, number(1), size)
        return self.pool.numbers(at, size), self.within(pc.add(at, size))

    def within(self, at: Ints) -> Ints:
        """Damaged values must not lead out of the bytes."""
        return pc.min_element_wise(at, number(self.pool.size))

    def span(self, at: Ints, size: Ints, of: Of, text: bool) -> tuple[Node, Ints]:
        wrong = pc.or_(pc.less(size, number(0)), pc.greater(size, pc.subtract(of.end, at)))
        if self.mark(wrong, of):
            size = pc.if_else(wrong, number(0), size)
        return Spans(at, size, text), self.within(pc.add(at, size))


Step = Callable[[Walk, Any, Of], tuple[Any, Any]]
"""Reads one type: takes positions, and to which value each belongs; gives what it read, and the positions behind."""


def compiled(schema: Any) -> Step:
    """`schema`: as json.loads gives it. Raises Unfit."""
    return _step(schema, {}, "")


def _step(schema: Any, named: dict[str, Step], space: str) -> Step:
    if isinstance(schema, list):
        return _union(schema, named, space)
    if isinstance(schema, str):
        if schema in PLAIN:
            return PLAIN[schema]
        found = named.get(schema) or named.get(f"{space}.{schema}")
        if found is None:
            raise Unfit(f"type {schema}")
        return found
    kind = schema["type"]
    if kind in ("record", "fixed"):
        space = schema.get("namespace", space)
        step = _fixed(schema["size"]) if kind == "fixed" else _record(schema, named, space)
        named[schema["name"]] = named[f"{space}.{schema['name']}"] = step
        return step
    if kind == "array":
        return _array(schema["items"], named, space)
    return _step(kind, named, space)


def _longs(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
    values, at = w.long(at, of)
    return Longs(values), at


def _spans(text: bool) -> Step:
    def step(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
        size, at = w.long(at, of)
        return w.span(at, size, of, text)

    return step


def _flags(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
    w.mark(pc.greater_equal(at, of.end), of)
    return Flags(pc.not_equal(w.pool.data.take(at), pa.scalar(0, BYTE))), w.within(pc.add(at, number(1)))


PLAIN: Mapping[str, Step] = {
    "int": _longs,
    "long": _longs,
    "string": _spans(True),
    "bytes": _spans(False),
    "boolean": _flags,
}


def _fixed(size: int) -> Step:
    return lambda w, at, of: w.span(at, pa.repeat(pa.scalar(size, LONG), len(at)), of, False)


def _record(schema: Any, named: dict[str, Step], space: str) -> Step:
    steps = [(f["name"], _step(f["type"], named, space)) for f in schema["fields"]]

    def step(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
        found = {}
        for name, read in steps:
            found[name], at = read(w, at, of)
        return Fields(found), at

    return step


def _union(branches: list[Any], named: dict[str, Step], space: str) -> Step:
    others = [b for b in branches if b != "null"]
    if len(branches) != 2 or len(others) != 1:
        raise Unfit("a union of more than null and one type")
    inner, wanted = _step(others[0], named, space), branches.index(others[0])

    def step(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
        branch, at = w.long(at, of)
        w.mark(pc.or_(pc.less(branch, number(0)), pc.greater(branch, number(1))), of)
        valid = pc.equal(branch, wanted)
        there, behind = inner(w, at.filter(valid), of.filter(valid))
        return Maybe(valid, there), pc.replace_with_mask(at, valid, behind)

    return step


def _count(w: Walk, at: Ints, of: Of) -> tuple[Ints, Ints]:
    """How many items follow. A block that also says its size, or more items than bytes, is left to others."""
    count, at = w.long(at, of)
    wrong = pc.or_(pc.less(count, number(0)), pc.greater(count, pc.subtract(of.end, at)))
    if w.mark(wrong, of):
        count = pc.if_else(wrong, number(0), count)
    return count, at


def _ended(w: Walk, some: Any, at: Ints, of: Of) -> Ints:
    """Where there were items, no second block may follow."""
    inner = of.filter(some)
    more, behind = w.long(at.filter(some), inner)
    w.mark(pc.not_equal(more, number(0)), inner)
    return pc.replace_with_mask(at, some, behind)


def _runs(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
    count, at = _count(w, at, of)
    some = pc.greater(count, number(0))
    last = pc.if_else(some, w.pool.end_of(at, pc.subtract(count, number(1))), pc.subtract(at, number(1)))
    wrong = pc.greater_equal(last, of.end)
    if w.mark(wrong, of):
        count, last = pc.if_else(wrong, number(0), count), pc.if_else(wrong, pc.subtract(at, number(1)), last)
    return Runs(at, count), _ended(w, some, w.within(pc.add(last, number(1))), of)


def _array(items: Any, named: dict[str, Step], space: str) -> Step:
    if items in ("int", "long"):
        return _runs
    inner = _step(items, named, space)

    def step(w: Walk, at: Ints, of: Of) -> tuple[Node, Ints]:
        count, at = _count(w, at, of)
        some = active = pc.greater(count, number(0))
        parts, owners = [], []
        for k in range(1, MOST_ITEMS + 1):  # the first time also where there are none: for the columns
            now = of.filter(active)
            found, behind = inner(w, at.filter(active), now)
            at = pc.replace_with_mask(at, active, behind)
            parts.append(found)
            owners.append(pc.indices_nonzero(active).cast(LONG))
            active = pc.greater(count, number(k))
            if w.wrong:
                active = pc.and_not(active, pc.is_in(of.who, pa.concat_arrays(w.wrong)))
            if not pc.any(active).as_py():
                break
        w.mark(active, of)
        return _in_order(w, count, parts, owners, of), _ended(w, some, at, of)

    return step


def _in_order(w: Walk, count: Ints, parts: Sequence[Node], owners: Sequence[Ints], of: Of) -> Node:
    """The items were read the first of all values first, then the second ones; give those of each value together."""
    owner, items = pa.concat_arrays(owners), join(parts)
    if w.wrong:  # of these not all were read
        lost = pc.is_in(of.who, pa.concat_arrays(w.wrong))
        count = pc.if_else(lost, number(0), count)
        kept = pc.invert(lost.take(owner))
        owner, items = owner.filter(kept), items.pick(pc.indices_nonzero(kept).cast(LONG))
    if len(parts) > 1:
        items = items.pick(pc.sort_indices(owner).cast(LONG))
    return Lists(count, items)
