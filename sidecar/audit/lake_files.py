"""Parquet files of the lake, written by tasks straight from Arrow. A task tells the driver only what it wrote."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.columns import BYTES, DATE, INT, LONG, TEXT, TIME, Table

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 131_072, 64 << 20
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
LONGEST_STATISTIC = 64
"""A longer text as least or greatest value is left out."""
OPEN = "open-"
"""Names of files that hold rows which a later batch replaces begin so."""
MERGED = "merged-"
"""Names of files that maintenance made of several begin so."""


@dataclass(frozen=True)
class FileInfo:
    """`path`: below the folder of its table. `stats`: as Delta's log has them. `open`: a later batch replaces it."""

    path: str
    size: int
    rows: int
    partition: tuple[tuple[str, str | None], ...]
    stats: str
    open: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> FileInfo:
        return cls(**{**said, "partition": tuple((n, v) for n, v in said["partition"])})


@dataclass(frozen=True)
class Target:
    """Where a task writes the rows of a table. `name`: what its files are called, but for what makes them unique."""

    table: Table
    folder: str
    name: str


def batch_name(batch: int) -> str:
    return f"b{batch:08d}-"


def batch_of(name: str) -> int | None:
    """Of a file with this name; None: maintenance has made it of several."""
    found = re.match(rf"(?:{OPEN})?b(\d{{8}})-", name)
    return None if found is None else int(found[1])


@dataclass
class _Open:
    """A file that is being written. Rows wait until they fill a row group."""

    path: str
    partition: tuple[tuple[str, str | None], ...]
    open: bool
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    writer: Any = None


class TableWriter:
    """Writes rows of one table, into a file for each of its folders."""

    def __init__(self, target: Target) -> None:
        self.target, self.table = target, target.table
        self.schema = pa.schema([f for f in self.table.arrow if f.name not in self.table.by])
        self._files: dict[tuple[tuple[tuple[str, str | None], ...], bool], _Open] = {}

    def write(self, batch: Any) -> None:
        """`batch`: all columns of the table, in any order."""
        if not len(batch):
            return
        for partition, is_open, part in self._parts(batch):
            f = self._files.get((partition, is_open))
            if f is None:
                f = self._files[partition, is_open] = _Open(self._path(partition, is_open), partition, is_open)
            data = pa.Table.from_batches([part.select(self.schema.names)]).cast(self.schema)
            f.waiting.append(data)
            f.rows += len(data)
            f.bytes += data.nbytes
            if f.rows >= ROW_GROUP_ROWS or f.bytes >= ROW_GROUP_BYTES:
                self._flush(f)

    def close(self) -> list[FileInfo]:
        found = []
        for f in self._files.values():
            self._flush(f)
            f.writer.close()
            path = Path(self.target.folder, f.path)
            found.append(self._info(f, path))
        return found

    def _parts(self, batch: Any) -> Iterator[tuple[tuple[tuple[str, str | None], ...], bool, Any]]:
        by = [*self.table.by, *([self.table.open] if self.table.open else [])]
        if not by:
            yield (), False, batch
            return
        rows = pa.table({n: batch[n] for n in by}).group_by(by).aggregate([]).to_pylist()
        for values in rows:
            part = batch
            for name, value in values.items() if len(rows) > 1 else ():
                part = part.filter(part[name].is_null() if value is None else pc.equal(part[name], value))
            named = tuple((n, None if values[n] is None else str(values[n])) for n in self.table.by)
            yield named, bool(self.table.open and values[self.table.open]), part

    def _path(self, partition: tuple[tuple[str, str | None], ...], is_open: bool) -> str:
        folders = [f"{n}={NO_VALUE if v is None else quote(v, safe=' -_.')}" for n, v in partition]
        # A task that is tried again must not write into the files of its first attempt.
        name = f"{OPEN if is_open else ''}{self.target.name}{uuid.uuid4().hex[:12]}.parquet"
        return "/".join([*folders, name])

    def _flush(self, f: _Open) -> None:
        if f.writer is None:
            path = Path(self.target.folder, f.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            f.writer = pq.ParquetWriter(path, self.schema, compression="zstd", compression_level=1)
        if f.waiting:
            data = pa.concat_tables(f.waiting)
            f.writer.write_table(data, row_group_size=max(1, len(data)))
            f.waiting, f.rows, f.bytes = [], 0, 0

    def _info(self, f: _Open, path: Path) -> FileInfo:
        meta = pq.read_metadata(path)
        return FileInfo(
            f.path, os.path.getsize(path), meta.num_rows, f.partition, json.dumps(statistics(meta, self.schema)), f.open
        )


def statistics(meta: Any, schema: Any) -> dict[str, Any]:
    """Least and greatest values of the plain columns, as Delta's log has them."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for i in range(meta.num_columns):
        name = meta.schema.column(i).path
        if name not in schema.names or schema.field(name).type not in (INT, LONG, TEXT, TIME, DATE):
            continue
        found = [meta.row_group(g).column(i).statistics for g in range(meta.num_row_groups)]
        if any(s is None or not s.has_null_count for s in found):
            continue
        nulls[name] = sum(s.null_count for s in found)
        ranges = [(s.min, s.max) for s in found if s.has_min_max]
        if ranges and all(s.has_min_max or s.num_values == 0 for s in found):
            low, high = _shown(min(a for a, _ in ranges)), _shown(max(b for _, b in ranges))
            if low is not None and high is not None:
                least[name], most[name] = low, high
    return {"numRecords": meta.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _shown(value: Any) -> Any:
    """As JSON. Times in the lake are whole milliseconds, which is as fine as Delta's statistics are."""
    if hasattr(value, "strftime"):
        text: str = value.isoformat(timespec="milliseconds") if hasattr(value, "hour") else value.isoformat()
        return text.replace("+00:00", "Z")
    return None if isinstance(value, str) and len(value) > LONGEST_STATISTIC else value


def typed(batch: Any, table: Table) -> Any:
    """The columns of the table by name, with its types: Spark names the parts of lists differently."""
    wanted = table.arrow
    columns = [batch.column(batch.schema.get_field_index(f.name)).cast(f.type) for f in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def no_rows(table: Table) -> str:
    """A table without rows in DuckDB, as what may follow FROM."""
    nulls = ", ".join(f'NULL::{duck_type(c.type)} AS "{c.name}"' for c in table.columns)
    return f"(SELECT {nulls} WHERE false)"


DUCK = {INT: "INTEGER", LONG: "BIGINT", TEXT: "VARCHAR", BYTES: "BLOB", TIME: "TIMESTAMPTZ", DATE: "DATE"}


def duck_type(kind: Any) -> str:
    """The type by its name in DuckDB."""
    if pa.types.is_list(kind):
        return f"{duck_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{chr(34)}{f.name}{chr(34)} {duck_type(f.type)}' for f in kind)})"
    return DUCK.get(kind, "BOOLEAN" if kind == pa.bool_() else "DOUBLE")
