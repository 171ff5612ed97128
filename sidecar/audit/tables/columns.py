"""Descriptions of the lake's tables: columns, types, meanings. Arrow and Spark schemas, DDL and docs come from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

INT, LONG, TEXT, FLAG, BYTES = pa.int32(), pa.int64(), pa.string(), pa.bool_(), pa.binary()
TIME = pa.timestamp("us", tz="UTC")
DATE = pa.date32()

SIMPLE = {INT: "int", LONG: "bigint", TEXT: "string", FLAG: "boolean", BYTES: "binary", TIME: "timestamp", DATE: "date"}


def many(item: Any) -> Any:
    return pa.list_(item)


def record(**fields: Any) -> Any:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


@dataclass(frozen=True)
class Column:
    """A column. `null`: when it has no value; empty if it always has one. `value`: SQL of it in the fold's rows,
    of a time in Unix ms; empty: the column of its name, of a time the one in ms."""

    name: str
    type: Any
    doc: str
    null: str = ""
    value: str = ""


@dataclass(frozen=True)
class Table:
    """A table. `layer`: bronze, silver or gold. `key`: columns that identify a row. `by`: columns that name folders; if
    `open` is one of them, a later batch replaces the rows in which it is true."""

    layer: str
    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    by: tuple[str, ...] = ()

    @cached_property
    def arrow(self) -> Any:
        return pa.schema([pa.field(c.name, c.type, nullable=bool(c.null)) for c in self.columns])

    @cached_property
    def ddl(self) -> str:
        """The columns as Spark's DDL."""
        return ", ".join(f"`{c.name}` {ddl(c.type)}" for c in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)


def ddl(kind: Any) -> str:
    """Returns Spark SQL's name of the type. Raises KeyError for a type that no table here has."""
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {ddl(f.type)}' for f in kind)}>"
    return SIMPLE[kind]


def by_name(tables: Sequence[Table]) -> dict[str, Table]:
    return {t.name: t for t in tables}
