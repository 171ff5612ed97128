"""Executors' tasks for a batch: they write bronze, then make silver of it. The driver gets file infos, claims, schemas.

State partition and offset identify a record. A source may have it twice: dumps overlap, or a folder got the same
records again. Each task reports the ranges of offsets that it wrote of each partition, and whether they rose. Where a
range leaves room for a second copy, the partition's files are rewritten with each record once. Two different records
of one offset are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from sidecar.audit.decode.decoder import Decoder, claims_in, in_sizes, schemas_in
from sidecar.audit.errors import Refused
from sidecar.audit.gold.frames import database
from sidecar.audit.lake.files import FileInfo, TableWriter, Target, in_duckdb, reports
from sidecar.audit.source.bronze import READ_AT_ONCE, rows_of
from sidecar.audit.source.options import Split
from sidecar.audit.tables.layers import BRONZE

Span = tuple[int, int, int, int, bool]
"""Partition, first and last offset of rows, the widest step between two, and whether the offsets rise at each."""


def bronze_of_splits(splits: Sequence[Split], target: Target, ids: Iterator[int]) -> list[str]:
    """Reads and writes the splits with these numbers. The records never go through the JVM. Reports also facts for the
    driver: claims, schemas, and spans of offsets."""
    writer = TableWriter(target)
    claims: list[tuple[int, int, int]] = []
    schemas: dict[str, str] = {}
    spans: list[Span] = []
    for rows in (rows for i in ids for batch in splits[i]() for rows in _by_partition(batch)):
        claims += claims_in(rows)
        schemas |= schemas_in(rows)
        spans.append(_span(rows))
        writer.write(rows)
    facts = {"claims": claims, "schemas": [*schemas.items()], "spans": spans}
    return [*reports({BRONZE.name: writer}), json.dumps(facts)]


def _by_partition(batch: Any) -> Iterator[Any]:
    partitions = batch["state_partition"].unique().to_pylist()
    for p in partitions:
        yield batch if len(partitions) == 1 else batch.filter(pc.equal(batch["state_partition"], p))


def _span(rows: Any) -> Span:
    p, offset = rows["state_partition"][0].as_py(), rows["offset"]
    ends, steps = pc.min_max(offset).as_py(), pc.subtract(offset[1:], offset[:-1])
    return p, ends["min"], ends["max"], pc.max(steps).as_py() or 1, pc.all(pc.greater(steps, 0)).as_py() is not False


def in_doubt(spans: Sequence[Span]) -> list[int]:
    """Returns the state partitions of which a record may have been written twice. `spans`: sorted."""
    overlapping = {a[0] for a, b in pairwise(spans) if a[0] == b[0] and a[2] >= b[1]}
    return sorted(overlapping | {p for p, *_, rising in spans if not rising})


def has_hole(spans: Sequence[Span], offsets: tuple[int, int]) -> bool:
    """Whether two of these offsets in a row have no record; one alone is the end of a transaction. If the batch before
    had read all that was there, compaction has overtaken it, and may have left nothing of a member that left, nor of a
    claim. `spans`: those of the state partition, sorted."""
    begin, end = offsets
    lasts, firsts = [begin - 1, *(s[2] for s in spans)], [*(s[1] for s in spans), end]
    steps = [b - a for a, b in zip(lasts, firsts, strict=True)]
    return max(*steps, *(s[3] for s in spans), 0) > 2


def bronze_once(parts: Sequence[Sequence[FileInfo]], target: Target, ids: Iterator[int]) -> list[str]:
    """Rewrites the parts with these numbers, each record once. Raises Refused if two records of one offset
    differ."""
    writer = TableWriter(target)
    spans: list[Span] = []
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
                spans.append(_span(batch))
                writer.write(batch)
    return [*reports({BRONZE.name: writer}), json.dumps({"spans": spans})]


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
    for batch in in_sizes(rows for i in ids for f in parts[i] for rows in rows_of(f)):
        for name, rows in decoder.decode(batch).items():
            if name in writers:
                writers[name].write(rows)
    return reports(writers)
