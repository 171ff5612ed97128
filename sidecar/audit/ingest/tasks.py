"""Executors' tasks for a batch: they write bronze, then make silver of it. The driver gets file infos, claims, schemas.

State partition and offset identify a record. A source may have it twice: dumps overlap, or a folder got the same
records again. Each task reports the ranges of offsets that it wrote of each partition, and whether they rose. Where a
range leaves room for a second copy, the partition's files are rewritten with each record once. Two different records
of one offset are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.decode.decoder import Decoder, claims_in, schemas_in
from sidecar.audit.errors import Refused
from sidecar.audit.gold.frames import database
from sidecar.audit.lake.files import FileInfo, TableWriter, Target, in_duckdb, reports, typed
from sidecar.audit.lake.storage import file_system
from sidecar.audit.source.options import Split
from sidecar.audit.tables.layers import BRONZE

READ_AT_ONCE = 65_536
DECODED_AT_ONCE = 16_384
"""Rows of a decoded batch. Smaller batches are joined up to this size, which costs a copy."""
Span = tuple[int, int, int, bool]
"""Partition, first and last offset of rows, and whether the offsets rise from row to row."""


def bronze_of_splits(splits: Sequence[Split], target: Target, skip: Mapping[int, int], ids: Iterator[int]) -> list[str]:
    """Reads and writes the splits with these numbers. The records never go through the JVM. `skip`: offset of each
    partition below which the lake has all records. Reports also facts for the driver: claims, schemas, and spans of
    offsets."""
    writer = TableWriter(target)
    claims: list[tuple[int, int, int]] = []
    schemas: dict[str, str] = {}
    spans: list[Span] = []
    for rows in (rows for i in ids for batch in splits[i]() for rows in _new(batch, skip)):
        claims += claims_in(rows)
        schemas |= schemas_in(rows)
        spans.append(_span(rows))
        writer.write(rows)
    facts = {"claims": claims, "schemas": schemas, "spans": spans}
    return [*reports({BRONZE.name: writer}), json.dumps({"facts": facts})]


def _new(batch: Any, skip: Mapping[int, int]) -> Iterator[Any]:
    """Yields the rows that are not skipped, of each partition."""
    p, offset = batch["state_partition"], batch["offset"]
    for one in p.unique().to_pylist():
        mine = pc.and_(pc.equal(p, one), pc.greater_equal(offset, skip.get(one, 0)))
        rows = batch if pc.all(mine).as_py() else batch.filter(mine)
        if len(rows):
            yield rows


def _span(rows: Any) -> Span:
    offset = rows["offset"]
    ends, rising = pc.min_max(offset).as_py(), pc.all(pc.greater(offset[1:], offset[:-1])).as_py()
    return rows["state_partition"][0].as_py(), ends["min"], ends["max"], rising is not False


def in_doubt(facts: Iterable[Mapping[str, Any]]) -> list[int]:
    """Returns the state partitions of which a record may have been written twice."""
    spans = sorted(span for one in facts for span in one["spans"])
    overlapping = {a[0] for a, b in pairwise(spans) if a[0] == b[0] and a[2] >= b[1]}
    return sorted(overlapping | {p for p, _, _, rising in spans if not rising})


def bronze_once(parts: Sequence[Sequence[FileInfo]], target: Target, ids: Iterator[int]) -> list[str]:
    """Rewrites the parts with these numbers, each record once. Raises Refused if two records of one offset
    differ."""
    writer = TableWriter(target)
    for i in ids:
        with database() as opened:
            db = opened.connection
            db.execute("set TimeZone = 'UTC'")
            rows = in_duckdb(db, BRONZE, [f"{target.folder}/{f.path}" for f in parts[i]], target.folder)
            compared = "key, value, headers, log_ms, log_time_type"
            twice = f'select state_partition, "offset" from {rows} group by all having count(distinct ({compared})) > 1'
            for p, offset in db.execute(f"{twice} order by 1, 2 limit 1").fetchall():
                raise Refused(f"two records of state partition {p} have the offset {offset}, and they differ")
            once = f'select distinct on (state_partition, "offset") * from {rows} order by state_partition, "offset"'
            for batch in db.sql(once).to_arrow_reader(READ_AT_ONCE):
                writer.write(typed(batch, BRONZE))
    return reports({BRONZE.name: writer})


def silver_of_files(
    parts: Sequence[Sequence[FileInfo]],
    targets: Mapping[str, Target],
    schemas: Mapping[str, str],
    claims: Mapping[int, Sequence[tuple[int, int]]],
    ids: Iterator[int],
) -> list[str]:
    """Decodes the bronze files of the parts with these numbers. `targets`: of the tables that still lack this batch."""
    decoder = Decoder(schemas, claims)
    writers = {name: TableWriter(target) for name, target in targets.items()}
    for batch in enough(rows for i in ids for f in parts[i] for rows in _rows(f)):
        for name, rows in decoder.decode(batch).items():
            if name in writers:
                writers[name].write(rows)
    return reports(writers)


def _rows(file: FileInfo) -> Iterator[Any]:
    """Yields the rows of a file of bronze. A scan as a dataset would take more memory and processor time."""
    store, name = file_system(file.path)
    types = {n: BRONZE.arrow.field(n).type for n in BRONZE.by}
    with pq.ParquetFile(name, filesystem=store) as parquet:
        for batch in parquet.iter_batches(READ_AT_ONCE):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for column, text in file.partition:
                columns[column] = pa.repeat(pa.scalar(text).cast(types[column]), len(batch))
            yield typed(pa.RecordBatch.from_pydict(columns), BRONZE)


def enough(rows: Iterable[Any]) -> Iterator[Any]:
    """Yields small batches joined: each batch has a fixed cost of decoding, however few its rows."""
    waiting: list[Any] = []
    for batch in rows:
        waiting.append(batch)
        if sum(map(len, waiting)) >= DECODED_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)
