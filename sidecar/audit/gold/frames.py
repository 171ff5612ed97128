"""Queries over named relations, in the calling process: each Spark task has its own DuckDB, on one thread. Rows that do
not fit into its memory go to the executor's disk."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from sidecar.audit.lake.files import duck_type, in_duckdb, no_rows
from sidecar.audit.tables.columns import TIME, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUOTED = '"offset"'
RESERVED = re.compile(r"(?<![\w\"])offset(?![\w\"])")
"""The column `offset` without quotes: SQL has a keyword of that name."""
COMPUTED = re.compile(r"\bt\d+\b")
"""Name of a computed table."""
ROWS_AT_ONCE = 65_536


class _Table:
    """A computed table. It is dropped when no frame reads it any more, which saves a fifth of a task's memory."""

    def __init__(self, db: Database, name: str) -> None:
        self.db, self.name = db, name

    def __del__(self) -> None:
        self.db.unread.append(self.name)


@dataclass(frozen=True)
class Frame:
    """A relation: a query, or rows that were computed. As text it is SQL to follow FROM. Keep the frame for as long as
    the text is in use."""

    db: Database
    name: str
    tables: tuple[_Table, ...] = field(default=(), compare=False)
    """Computed tables that it reads."""

    def __str__(self) -> str:
        return self.name

    def query(self, text: str) -> Frame:
        """Returns a query over this frame, and others of its database. Each read computes it again."""
        return self.db.query(text)

    def where(self, condition: str) -> Frame:
        return self.query(f"select * from {self} where {condition}")

    def select(self, columns: str) -> Frame:
        return self.query(f"select {columns} from {self}")

    def computed(self) -> Frame:
        """Computes the frame now and keeps the rows, for frames that are read more than once."""
        return self.db.computed(self)

    def batches(self) -> Iterator[Any]:
        """Yields the relation's rows as Arrow record batches."""
        yield from self.db.connection.sql(f"select * from {self}").to_arrow_reader(ROWS_AT_ONCE)


@dataclass
class Database:
    connection: DuckDBPyConnection
    numbers: Iterator[int] = field(default_factory=count)
    tables: WeakValueDictionary[str, _Table] = field(default_factory=WeakValueDictionary)
    unread: list[str] = field(default_factory=list)
    """Names of tables that go before the next one is computed."""

    def query(self, text: str) -> Frame:
        known = {name: self.tables[name] for name in COMPUTED.findall(text) if name in self.tables}
        return Frame(self, f"({RESERVED.sub(QUOTED, text)})", tuple(known.values()))

    def computed(self, frame: Frame) -> Frame:
        while self.unread:
            self.connection.execute(f"drop table {self.unread.pop()}")
        name = f"t{next(self.numbers)}"
        self.connection.execute(f"create temp table {name} as select * from {frame}")
        self.tables[name] = table = _Table(self, name)
        return Frame(self, name, (table,))

    def rows(self, rows: Any) -> Frame:
        """Returns an Arrow table as a relation."""
        name = f"t{next(self.numbers)}"
        self.connection.register(name, rows)
        return Frame(self, name)

    def files(self, table: Table, paths: Sequence[str], condition: str = "true") -> Frame:
        """Returns the rows of these files, which have all columns of the table. They are read at once: many queries
        take them, and each would plan the reading anew. So no query has the paths in its text, and a path may have the
        word `offset`."""
        rows = in_duckdb(self.connection, table, paths, paths[0].rpartition("/")[0] if paths else "")
        return Frame(self, f"{rows} where {condition}").computed()

    def empty(self, table: Table) -> Frame:
        return self.query(f"select * from {no_rows(table)}")


def _processors() -> int:
    """Returns the number of processors that this process may use; of all of them, on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def database(memory: str = "") -> Iterator[Database]:
    """Yields a database. `memory`: its limit in DuckDB's notation; empty: an equal share of 80 % for each processor.
    Rows that do not fit into it go to the executor's disk."""
    import duckdb

    config: dict[str, Any] = {"threads": 1, "memory_limit": memory or f"{80 / _processors():.1f}%"}
    # Queries that need an order have windows; to keep the order of files would cost a copy.
    config |= {"preserve_insertion_order": False, "autoinstall_known_extensions": False}
    disk = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with (
        tempfile.TemporaryDirectory(prefix="sidecar-audit-", dir=disk) as folder,
        duckdb.connect(config=config | {"temp_directory": folder}) as connection,
    ):
        yield Database(connection)


def numbers(key: str, name: str, *frames: Frame) -> Frame:
    """Returns a number of this name for each key in any of these. Windows over numbers take half the time."""
    every = " union all ".join(f"select {key} from {frame}" for frame in frames)
    return (
        frames[0].query(f"select row_number() over () as {name}, * from (select distinct * from ({every}))").computed()
    )


def by_number(rows: Frame, numbers: Frame, key: str, name: str) -> Frame:
    """Returns the rows with their number instead of the key."""
    return rows.query(f"select {name}, r.* exclude ({key}) from {rows} r join {numbers} using ({key})")


def kinds(frame: Frame) -> set[str]:
    """Returns the kinds of these rows."""
    return {kind for batch in frame.select("distinct kind").batches() for kind in batch["kind"].to_pylist()}


def shape(frame: Frame, table: Table) -> Frame:
    """Returns the table's columns, with its types, in its order."""
    picked = (
        f'make_timestamp({c.value or f"{c.name[:-4]}ms"} * 1000) as "{c.name}"'
        if c.type == TIME
        else f'cast({c.value or c.name} as {duck_type(c.type)}) as "{c.name}"'
        for c in table.columns
    )
    return frame.select(", ".join(picked))
