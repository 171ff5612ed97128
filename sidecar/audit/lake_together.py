"""Rows of many tables, written in one Spark job.

Each job costs the driver a plan and each task a Python worker, and that is most of the time of a small batch. So all
rows go through one frame, whose columns the tables share: the first text of any table is in the first column for texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.columns import ddl
from sidecar.audit.lake_files import FileInfo, TableWriter, Target
from sidecar.audit.lake_spark import over_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Part = tuple[Target, "DataFrame"]
Shared = list[dict[str, str]]
"""Per target: its columns, and the shared ones that they are in."""


def write_together(parts: Sequence[Part], folder: Path) -> list[list[FileInfo]]:
    """The files of each part. `folder`: where the tasks' words are put down in between."""
    if not parts:
        return []
    targets = [target for target, _ in parts]
    types, shared = _columns(targets)
    selects, frames = [], {}
    for i, (_, df) in enumerate(parts):
        own = {there: here for here, there in shared[i].items()}
        columns = ", ".join(
            f"`{own[c]}` as {c}" if c in own else f"cast(null as {kind}) as {c}" for c, kind in types.items()
        )
        selects.append(f"select {i} as target, {columns} from {{f{i}}}")
        frames[f"f{i}"] = df
    spark = parts[0][1].sparkSession
    rows = spark.sql(" union all ".join(selects), None, **frames)
    rows = rows.coalesce(spark.sparkContext.defaultParallelism)
    found: list[list[FileInfo]] = [[] for _ in parts]
    for said in over_rows(rows, partial(_written, targets, shared), folder):
        found[said["target"]].append(FileInfo.of(said["file"]))
    return found


def _columns(targets: Iterable[Target]) -> tuple[dict[str, str], Shared]:
    """The shared columns with their types, as many of each type as the table with the most has."""
    types: dict[str, str] = {}
    names: dict[str, int] = {}
    shared: Shared = []
    for target in targets:
        used: Counter[str] = Counter()
        mine = {}
        for column in target.table.columns:
            kind = ddl(column.type)
            name = f"c{names.setdefault(kind, len(names))}_{used[kind]}"
            used[kind] += 1
            types[name] = kind
            mine[column.name] = name
        shared.append(mine)
    return types, shared


def _written(targets: Sequence[Target], shared: Shared, batches: Iterable[Any]) -> Iterator[str]:
    """What a task does: each row to the table that it is of."""
    writers: dict[int, TableWriter] = {}
    for batch in batches:
        which = batch.column(0)
        there = which.unique().to_pylist()
        for i in there:
            part = batch if len(there) == 1 else batch.filter(pc.equal(which, i))
            if i not in writers:
                writers[i] = TableWriter(targets[i])
            writers[i].write(_own(part, targets[i], shared[i]))
    for i, writer in writers.items():
        for file in writer.close():
            yield json.dumps({"target": i, "file": json.loads(file.to_json())})


def _own(rows: Any, target: Target, shared: Mapping[str, str]) -> Any:
    """The columns of the table by name, with its types: Spark names the parts of lists differently."""
    wanted = target.table.arrow
    columns = [rows.column(rows.schema.get_field_index(shared[f.name])).cast(f.type) for f in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
