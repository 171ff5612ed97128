"""The table `runs`: a row for each batch of the lake. It has no files: it is made of the lake's record `_batches`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sidecar.audit.lake.batch import Batch
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.columns import INT, LONG, TEXT, TIME, Column, Table, many, record
from sidecar.audit.tables.layers import CORRUPT

READ = record(state_partition=INT, from_offset=LONG, until_offset=LONG)
RUNS = Table(
    "gold",
    "runs",
    "What each batch has read, by the lake's own record, `_batches`. Only `sidecar audit sql` has it.",
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


def runs(lake: Lake) -> Any:
    """Returns the table as an Arrow table."""
    return pa.Table.from_pylist(list(map(_row, lake.batches())), RUNS.arrow)


def _row(batch: Batch) -> dict[str, Any]:
    return {
        "batch": batch.number,
        "source": batch.source,
        "identity": batch.identity,
        "done_ms": batch.done_ms,
        "done_time": datetime.fromtimestamp(batch.done_ms / 1000, UTC),
        "records": batch.records,
        "unreadable": batch.counts.get(CORRUPT.name, 0),
        "lost": sum(end - begin for begin, end in batch.lost.values()),
        "ranges": [dict(zip(READ.names, (p, *ends), strict=True)) for p, ends in batch.ranges.items()],
    }
