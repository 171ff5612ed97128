"""Parquet files of the lake, written by tasks directly from Arrow. A task reports only its files to the driver."""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.lake.storage import file_system, is_remote
from sidecar.audit.tables.columns import DATE, INT, LONG, TEXT, TIME, Table, ddl

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 131_072, 64 << 20
WAITING_BYTES = 256 << 20
"""Rows that wait in all folders of a table: a task may have a folder for each day and partition, and some hundred MB of
memory."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Partition = tuple[tuple[str, str | None], ...]
LONGEST_STATISTIC = 64
"""Characters of the longest text that the statistics may have as a least or greatest value."""


@dataclass(frozen=True)
class FileInfo:
    """A Parquet file. `path`: relative to its table's folder. `stats`: JSON, as in Delta's log."""

    path: str
    size: int
    rows: int
    partition: Partition
    stats: str


@dataclass(frozen=True)
class Target:
    """The place to which a task writes a table's rows. `name`: prefix of its files' names; a random suffix follows."""

    table: Table
    folder: str
    name: str


def batch_name(batch: int) -> str:
    return f"b{batch:08d}-"


def batch_of(path: str) -> int | None:
    """Returns the batch that wrote the file; None for a file that maintenance has merged from several."""
    match = re.match(r"b(\d{8})-", path.rsplit("/", 1)[-1])
    return None if match is None else int(match[1])


@dataclass
class _Open:
    """A file being written. Rows wait until they fill a row group."""

    path: str
    partition: Partition
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    sink: Any = None
    writer: Any = None
    metadata: list[Any] = field(default_factory=list)


class TableWriter:
    """Writer of one table's rows, with a file in each of the table's folders."""

    def __init__(self, target: Target) -> None:
        self.target, self.table = target, target.table
        self.schema = pa.schema([f for f in self.table.arrow if f.name not in self.table.by])
        self._files: dict[Partition, _Open] = {}

    def write(self, batch: Any) -> None:
        """Writes rows. `batch`: all columns of the table, in any order."""
        if not len(batch):
            return
        for partition, part in self._parts(batch):
            f = self._files.get(partition)
            if f is None:
                f = self._files[partition] = _Open(self._path(partition), partition)
            data = pa.Table.from_batches([part.select(self.schema.names)]).cast(self.schema)
            f.waiting.append(data)
            f.rows += len(data)
            f.bytes += data.nbytes
            if f.rows >= ROW_GROUP_ROWS or f.bytes >= ROW_GROUP_BYTES:
                self._flush(f)
        while sum(f.bytes for f in self._files.values()) > WAITING_BYTES:
            self._flush(max(self._files.values(), key=lambda f: f.bytes))

    def close(self) -> list[FileInfo]:
        return [self._closed(f) for f in self._files.values()]

    def _parts(self, batch: Any) -> Iterator[tuple[Partition, Any]]:
        by = list(self.table.by)
        if not by:
            yield (), batch
            return
        rows = pa.table({n: batch[n] for n in by}).group_by(by).aggregate([]).to_pylist()
        for values in rows:
            part = batch
            for name, value in values.items() if len(rows) > 1 else ():
                part = part.filter(part[name].is_null() if value is None else pc.equal(part[name], value))
            yield tuple((n, partition_text(values[n])) for n in by), part

    def _path(self, partition: Partition) -> str:
        # A task that is tried again must not write into the files of its first attempt.
        return "/".join([*folders_of(partition), f"{self.target.name}{uuid.uuid4().hex[:12]}.parquet"])

    def _flush(self, f: _Open) -> None:
        if f.writer is None:
            path = f"{self.target.folder}/{f.path}"
            if not is_remote(path):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            store, name = file_system(path)
            f.sink = store.open_output_stream(name)
            f.writer = pq.ParquetWriter(
                f.sink, self.schema, compression="zstd", compression_level=1, metadata_collector=f.metadata
            )
        if f.waiting:
            data = pa.concat_tables(f.waiting)
            f.writer.write_table(data, row_group_size=max(1, len(data)))
            f.waiting, f.rows, f.bytes = [], 0, 0

    def _closed(self, f: _Open) -> FileInfo:
        self._flush(f)
        f.writer.close()
        size = f.sink.tell()
        f.sink.close()
        (meta,) = f.metadata
        return FileInfo(f.path, size, meta.num_rows, f.partition, json.dumps(statistics(meta, self.schema)))


def reports(writers: Mapping[str, TableWriter]) -> list[str]:
    """Closes a task's writers. Returns its reports to the driver, in JSON: one for each file."""
    return [json.dumps({"table": name, "file": asdict(f)}) for name, writer in writers.items() for f in writer.close()]


def reported(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[FileInfo]]:
    """Returns the files that tasks have reported, by the name of their writer."""
    files: dict[str, list[FileInfo]] = defaultdict(list)
    for row in rows:
        if "file" in row:
            files[row["table"]].append(msgspec.convert(row["file"], FileInfo))
    return files


def folders_of(partition: Partition) -> list[str]:
    """Returns the names of a file's folders."""
    return [f"{n}={NO_VALUE if v is None else quote(v, safe=' -_.')}" for n, v in partition]


def partition_text(value: Any) -> str | None:
    """Returns a partition column's value as in Delta's log and in names of folders."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def statistics(meta: Any, schema: Any) -> dict[str, Any]:
    """Returns a file's statistics as Delta's log has them: null counts, least and greatest values of plain columns."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for i in range(meta.num_columns):
        name = meta.schema.column(i).path
        if name not in schema.names or schema.field(name).type not in (INT, LONG, TEXT, TIME, DATE):
            continue
        row_groups = [meta.row_group(g).column(i).statistics for g in range(meta.num_row_groups)]
        nulls[name] = sum(s.null_count for s in row_groups)
        ranges = [(s.min, s.max) for s in row_groups if s.has_min_max]
        if ranges and all(s.has_min_max or s.num_values == 0 for s in row_groups):
            low, high = _shown(min(a for a, _ in ranges)), _shown(max(b for _, b in ranges))
            if low is not None and high is not None:
                least[name], most[name] = low, high
    return {"numRecords": meta.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _shown(value: Any) -> Any:
    """Returns a statistic for JSON; None for a long text. Times in the lake are whole milliseconds, as fine as Delta's
    statistics."""
    if hasattr(value, "strftime"):
        text: str = value.isoformat(timespec="milliseconds") if hasattr(value, "hour") else value.isoformat()
        return text.replace("+00:00", "Z")
    return None if isinstance(value, str) and len(value) > LONGEST_STATISTIC else value


def typed(batch: Any, table: Table) -> Any:
    """Returns the table's columns, by name, with the table's types: Spark names the parts of lists differently."""
    return batch.select(table.names).cast(table.arrow)


def dataset(table: Table, paths: Sequence[str], folder: str) -> Any:
    """Returns these files of a table as an Arrow dataset. `folder`: the table's."""
    import pyarrow.dataset as ds  # imports pandas, which takes half a second

    kinds = ds.partitioning(pa.schema([table.arrow.field(n) for n in table.by]), flavor="hive")
    store, base = file_system(folder)
    names = [file_system(path)[1] for path in paths]
    return ds.dataset(
        names, table.arrow, format="parquet", filesystem=store, partitioning=kinds, partition_base_dir=base
    )


def in_duckdb(db: Any, table: Table, paths: Sequence[str], folder: str) -> str:
    """Returns SQL to follow FROM in this connection, for the rows of these files. Arrow reads files of an object store,
    so DuckDB needs no extension."""
    if paths and is_remote(paths[0]):
        name = f"files_{uuid.uuid4().hex}"
        db.register(name, dataset(table, paths, folder))
        return name
    return listed(table, paths)


def listed(table: Table, paths: Sequence[str]) -> str:
    """Returns SQL to follow FROM in any DuckDB that can open these files, for their rows. A column that files of an
    earlier version lack is null there."""
    if not paths:
        return no_rows(table)
    files = ", ".join(map(_duck_path, paths))
    names = ", ".join(f'"{n}"' for n in table.names)
    types = ", ".join(f"'{c.name}': '{duck_type(c.type)}'" for c in table.columns if c.name in table.by)
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ", hive_partitioning = false"
    read = f"SELECT * FROM read_parquet([{files}]{hive}, union_by_name = true)"
    return f"(SELECT {names} FROM ({no_rows(table)} UNION ALL BY NAME {read}))"


def _duck_path(path: str) -> str:
    """Returns a path as DuckDB's literal, without wildcards."""
    plain = re.sub(r"[\[*?]", r"[\g<0>]", path)
    return "'" + plain.replace("'", "''") + "'"


def no_rows(table: Table) -> str:
    """Returns SQL to follow FROM in DuckDB, for the table without rows."""
    nulls = ", ".join(f'NULL::{duck_type(c.type)} AS "{c.name}"' for c in table.columns)
    return f"(SELECT {nulls} WHERE false)"


def duck_type(kind: Any) -> str:
    """Returns DuckDB's name of the type."""
    if pa.types.is_list(kind):
        return f"{duck_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{chr(34)}{f.name}{chr(34)} {duck_type(f.type)}' for f in kind)})"
    return "TIMESTAMPTZ" if kind == TIME else ddl(kind)
