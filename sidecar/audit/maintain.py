"""Keeps a lake small: a batch leaves files in each table, and whoever reads them opens each.

Small files become one for each folder, in one transaction; what no reader needs goes when it is old enough; one
manifest or checkpoint takes the place of all before; what is recorded of former batches goes into one file. The lock of
the lake is taken for each table anew, so batches go on in between. It may be killed at any point: what it had not made
visible does not count, and is removed like all that is old. It needs no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.audit.columns import Table
from sidecar.audit.errors import AuditError
from sidecar.audit.gold.tables import GOLD
from sidecar.audit.lake import RETENTION_HOURS, Lake
from sidecar.audit.lake_files import FileInfo, TableWriter, Target, batch_of
from sidecar.audit.lake_parquet import put_json, read_json
from sidecar.audit.layers import BRONZE, SILVER_TABLES

TABLES = (BRONZE, *SILVER_TABLES.values(), *GOLD.values())
FULL_BYTES = 64 << 20
"""A file of this size is left as it is, and files are put together up to it."""
AT_ONCE = 16_384
PACKED = ("number", "source", "identity", "incarnation", "done_ms", "ranges", "lost", "counts")
"""What is kept of the record of a batch that is over: all but what the next one needed."""


@dataclass
class Maintained:
    """`merged` small files became `into`; `removed`: files that no reader needed; `packed`: records of batches."""

    merged: int = 0
    into: int = 0
    removed: int = 0
    packed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.merged:,} small files became {self.into:,}; {self.removed:,} files that nobody needs were removed;"
            f" {self.packed:,} records of batches were packed"
        )


def maintain(lake: Lake, hours: int = RETENTION_HOURS, full_bytes: int = FULL_BYTES) -> Maintained:
    """`hours`: how long what was replaced is kept for readers that have begun with it. Raises AuditError."""
    told = Maintained()
    for incarnation in range(lake.incarnation + 1):
        one = Lake.at(lake.base, incarnation=incarnation)
        if one.last_batch() < 0:
            continue
        over = _over(one)
        for table in TABLES:
            with one.lock():
                _merge(one, table, over, full_bytes, told)
                one.tables.pack(table)
                told.removed += len(one.tables.vacuum(table, hours))
        with one.lock():
            told.packed += _pack_records(one, over - 1)
    return told


def _over(lake: Lake) -> int:
    """The last batch that nobody has to find by its number any more: gold was made of it."""
    return min(lake.last_batch(), lake.done(list(GOLD.values())))


def _merge(lake: Lake, table: Table, over: int, full_bytes: int, told: Maintained) -> None:
    for files in _together(lake.tables.listed(table), over, full_bytes):
        target = lake.tables.merging(table)
        made = _written(lake, target, files)
        lake.tables.swap(target, made, files)
        told.merged += len(files)
        told.into += len(made)


def _together(files: Sequence[FileInfo], over: int, full_bytes: int) -> Iterator[list[FileInfo]]:
    """Files of one folder that make one together, those that were merged before first."""
    folders: dict[Any, list[FileInfo]] = defaultdict(list)
    for f in files:
        if not f.open and f.size < full_bytes and (_batch(f) or 0) <= over:
            folders[f.partition].append(f)
    for small in folders.values():
        small.sort(key=lambda f: (_batch(f) is not None, Path(f.path).name))
        some: list[FileInfo] = []
        size = 0
        for f in small:
            if some and size + f.size > full_bytes:
                if len(some) > 1:
                    yield some
                some, size = [], 0
            some.append(f)
            size += f.size
        if len(some) > 1:
            yield some


def _batch(f: FileInfo) -> int | None:
    return batch_of(Path(f.path).name)


def _written(lake: Lake, target: Target, files: Sequence[FileInfo]) -> list[FileInfo]:
    """Raises AuditError if the rows are not all there."""
    writer = TableWriter(target)
    for f in files:
        for batch in _rows(lake, target.table, f):
            writer.write(batch)
    made = writer.close()
    if sum(f.rows for f in made) != sum(f.rows for f in files):
        raise AuditError(f"{target.table.name}: files with other rows than the lake says: nothing was put together")
    return made


def _rows(lake: Lake, table: Table, f: FileInfo) -> Iterator[Any]:
    values = dict(f.partition)
    with pq.ParquetFile(lake.tables.place(table, f)) as opened:
        for raw in opened.iter_batches(AT_ONCE):
            columns = [
                pa.repeat(pa.scalar(values[a.name]).cast(a.type), len(raw)) if a.name in values else raw[a.name]
                for a in table.arrow
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=table.arrow)


def _pack_records(lake: Lake, below: int) -> int:
    """The records of batches that are over go into one file, and their plans away. The last two stay: of them the next
    batch is made."""
    folder = lake.record(0).parent
    old = sorted(p for p in folder.glob("*.json") if p.name[:8].isdigit() and int(p.name[:8]) < below)
    records = [read_json(p) for p in old if p.stem.isdigit()]
    if records:
        before = read_json(lake.packed) if lake.packed.exists() else []
        known = {said["number"] for said in before}
        more = [{name: said[name] for name in PACKED} for said in records if said["number"] not in known]
        put_json(lake.packed, [*before, *more])
    for path in old:
        path.unlink(missing_ok=True)
    return len(records)
