"""Reader of Avro values of one schema by column, with the compiled kernel native/_columns.c if there is one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import expand_schema

from sidecar.audit.decode.arrow import LONG, Unfit, offsets_of

try:
    from sidecar.native._columns import columns as columns
except ImportError:
    columns = None  # type: ignore[assignment]

LONGS, FLAG, SPAN, FIXED, MAYBE, FIELDS, LIST = range(7)
PLAIN = {"int": LONGS, "long": LONGS, "string": SPAN, "bytes": SPAN, "boolean": FLAG}
MOST_DEEP = 32


class Compiled:
    """A schema's layout as a program for the kernel: an op and an argument for each type, the outer type first."""

    def __init__(self, schema: Any) -> None:
        """Compiles `schema`, as json.loads returns it. Raises Unfit."""
        if columns is None:
            raise Unfit("there is no compiled kernel")
        self._ops: list[int] = []
        self._texts: list[bool] = []
        """For each type of the program, whether it is a string."""
        self._fields: list[list[str]] = []
        self._add(expand_schema(schema), 0)
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

    def _add(self, schema: Any, deep: int) -> None:
        if deep > MOST_DEEP:
            raise Unfit("types within types")
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, list):
            others = [s for s in kind if s != "null"]
            if len(kind) != 2 or len(others) != 1:
                raise Unfit("a union of more than null and one type")
            self._put(MAYBE, kind.index("null"))
            self._add(others[0], deep + 1)
        elif isinstance(kind, dict):
            self._add(kind, deep + 1)
        elif kind in PLAIN:
            self._put(PLAIN[kind], text=kind == "string")
        elif kind == "array":
            self._put(LIST)
            self._add(schema["items"], deep + 1)
        elif kind == "fixed" and schema["size"]:
            self._put(FIXED, schema["size"])
        elif kind == "record" and schema["fields"]:
            self._put(FIELDS, len(schema["fields"]), fields=[f["name"] for f in schema["fields"]])
            for f in schema["fields"]:
                self._add(f["type"], deep + 1)
        else:
            raise Unfit(f"type {kind}, or a type that takes no bytes")


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
