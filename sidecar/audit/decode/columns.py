"""Reader of Avro values of one schema by column, with the compiled kernel native/_columns.c if there is one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.arrow import LONG, Unfit, offsets_of

try:
    from sidecar.native._columns import columns as columns
except ImportError:
    columns = None  # type: ignore[assignment]

LONGS, FLAG, SPAN, FIXED, MAYBE, FIELDS, LIST = range(7)
PLAIN = {"int": LONGS, "long": LONGS, "string": SPAN, "bytes": SPAN, "boolean": FLAG}
MOST_DEEP, MOST_TYPES = 32, 4_096
"""Limits of a program. A schema of a few hundred bytes may name types twice each, and so on for 30 levels."""


class Compiled:
    """A schema's layout as a program for the kernel: an op and an argument for each type, the outer type first."""

    def __init__(self, schema: Any) -> None:
        """Compiles `schema`, as json.loads returns it. Raises Unfit."""
        if columns is None:
            raise Unfit("there is no compiled kernel")
        self._named: dict[str, Any] = {}
        self._ops: list[int] = []
        self._texts: list[bool] = []
        """For each type of the program, whether it is a string."""
        self._fields: list[list[str]] = []
        self._add(schema, "", 0)
        self._program = array("i", self._ops).tobytes()

    def read(self, values: Any, which: Any, skip: int) -> tuple[Any, Any]:
        """Reads the values at the places `which`, without their first `skip` bytes each. Returns flags for those that
        cannot be read by column, and the others as an array of the schema's type, whose strings may not be UTF-8."""
        _, offsets, data = values.buffers()
        bad, decoded = columns(self._program, data or b"", offsets, values.offset, which.buffers()[1], skip)
        parts = iter(zip(self._ops[::2], self._texts, self._fields, decoded, strict=True))
        return _flags(bad), _array(parts)

    def _put(self, op: int, arg: int = 0, text: bool = False, fields: list[str] | None = None) -> None:
        self._ops += [op, arg]
        self._texts.append(text)
        self._fields.append(fields or [])

    def _add(self, schema: Any, space: str, deep: int) -> None:
        if deep > MOST_DEEP or len(self._fields) > MOST_TYPES:
            raise Unfit("types within types")
        if isinstance(schema, list):
            others = [s for s in schema if s != "null"]
            if len(schema) != 2 or len(others) != 1:
                raise Unfit("a union of more than null and one type")
            self._put(MAYBE, schema.index("null"))
            self._add(others[0], space, deep + 1)
        elif isinstance(schema, str) and schema in PLAIN:
            self._put(PLAIN[schema], text=schema == "string")
        elif isinstance(schema, str):
            named = self._named.get(schema) or self._named.get(f"{space}.{schema}")
            if named is None:
                raise Unfit(f"type {schema}")
            self._add(named, space, deep + 1)
        elif schema["type"] == "array":
            self._put(LIST)
            self._add(schema["items"], space, deep + 1)
        elif schema["type"] in ("record", "fixed"):
            self._add_named(schema, schema.get("namespace", space), deep)
        else:
            self._add(schema["type"], space, deep + 1)

    def _add_named(self, schema: Any, space: str, deep: int) -> None:
        self._named[schema["name"]] = self._named[f"{space}.{schema['name']}"] = schema
        fields = schema.get("fields")
        if not (fields or schema.get("size")):
            raise Unfit("a type that takes no bytes")
        if fields is None:
            self._put(FIXED, schema["size"])
            return
        self._put(FIELDS, len(fields), fields=[f["name"] for f in fields])
        for f in fields:
            self._add(f["type"], space, deep + 1)


def _array(parts: Iterator[Any]) -> Any:
    op, text, fields, (rows, first, second) = next(parts)
    if op == FIELDS:
        return pa.StructArray.from_arrays([_array(parts) for _ in fields], names=fields)
    if op == LIST:
        return pa.ListArray.from_arrays(offsets_of(_longs(rows, first)), _array(parts))
    if op == MAYBE:
        valid, there = _flags(first), _array(parts)
        places = pc.subtract(pc.cumulative_sum(valid.cast(LONG)), 1)
        return there.take(pc.if_else(valid, places, pa.scalar(None, LONG)))
    if op == FLAG:
        return _flags(first)
    if op == LONGS:
        return _longs(rows, first)
    kind = pa.string() if text else pa.binary()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(first), pa.py_buffer(second)])


def _longs(rows: int, raw: bytes) -> Any:
    return pa.Array.from_buffers(LONG, rows, [None, pa.py_buffer(raw)])


def _flags(raw: bytes) -> Any:
    return pa.Array.from_buffers(pa.uint8(), len(raw), [None, pa.py_buffer(raw)]).cast(pa.bool_())
