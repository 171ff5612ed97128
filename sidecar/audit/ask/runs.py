"""The table `runs`: a row for each batch of the lake. It has no files: it is a view of the lake's record `_batches`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sidecar.audit.lake.files import duck_path, duck_type, no_rows
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import is_remote, read_json
from sidecar.audit.tables.columns import INT, LONG, TEXT, TIME, Column, Table, many, record
from sidecar.audit.tables.layers import BRONZE

READ = record(state_partition=INT, from_offset=LONG, until_offset=LONG)
RUNS = Table(
    "gold",
    "runs",
    "What each batch has read. A view for DuckDB (`sidecar audit sql`, `sidecar audit views`) over the lake's own"
    " record, `_batches`.",
    ("batch",),
    (
        Column("batch", INT, "Number of the batch, from 0 on."),
        Column("source", TEXT, "Where the records come from, without passwords."),
        Column("identity", TEXT, "Which topic that is: its id, where the source knows one."),
        Column("done_ms", LONG, "When bronze and silver had it, Unix ms."),
        Column("done_time", TIME, "The same."),
        Column("records", LONG, "How many were read."),
        Column("unreadable", LONG, "How many of them cannot be read."),
        Column("lost", LONG, "Offsets that were gone from the topic before they could be read."),
        Column("ranges", many(READ), "The offsets that were read of each state partition."),
    ),
)
COUNTS, MAPS = pa.map_(TEXT, LONG), pa.map_(TEXT, many(LONG))
RECORDED = {"number": INT, "source": TEXT, "identity": TEXT, "done_ms": LONG, "counts": COUNTS, "ranges": MAPS}
RECORDED |= {"lost": MAPS}


def runs(lake: Lake, db: Any = None) -> str:
    """Returns SQL to follow FROM, for the table: in the connection `db`, or in any DuckDB that can open the files."""
    if lake.last_batch() < 0:
        return no_rows(RUNS)
    return f"""(SELECT DISTINCT ON (batch) number AS batch, source, identity, done_ms,
        to_timestamp(done_ms / 1000) AS done_time, counts['{BRONZE.name}'] AS records,
        coalesce(counts['corrupt'], 0) AS unreadable,
        coalesce(list_sum([x[2] - x[1] for x in map_values(lost)]), 0)::BIGINT AS lost,
        [struct_pack(state_partition := e.key::INTEGER, from_offset := e.value[1], until_offset := e.value[2])
            for e in map_entries(ranges)]::{duck_type(many(READ))} AS ranges
        FROM {_records(lake, db)} ORDER BY batch)"""


def _records(lake: Lake, db: Any) -> str:
    if db is not None and is_remote(lake.base):
        records = [read_json(path) for path in lake.records.glob("????????.json")]
        records += [record for path in lake.packed for record in read_json(path)]
        rows = [{n: list(r[n].items()) if isinstance(r[n], dict) else r[n] for n in RECORDED} for r in records]
        db.register("recorded", pa.Table.from_pylist(rows, pa.schema(list(RECORDED.items()))))
        return "recorded"
    patterns = ["/????????.json", *(["/packed*.json"] if lake.packed else [])]
    files = ", ".join(duck_path(str(lake.records), pattern) for pattern in patterns)
    types = ", ".join(f"{name}: '{duck_type(kind)}'" for name, kind in RECORDED.items())
    return f"read_json([{files}], columns = {{{types}}})"
