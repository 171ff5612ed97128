"""The whole audit: records into the lake, and from its silver to gold, batch by batch.

Gold follows silver: a batch of gold takes the new rows of one batch of silver and what the last batch of gold left.
That lies beside the tables, one folder for each batch, and is there before any table of gold has the batch: so whoever
dies in the middle is followed by one who finds the same input, and each table takes a batch once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from sidecar.audit.columns import Table
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import Folded, fold
from sidecar.audit.gold.tables import GOLD
from sidecar.audit.ingest import ingest, last_batch, waiting
from sidecar.audit.ingest_plan import Batch
from sidecar.audit.lake import Lake
from sidecar.audit.lake_files import FileInfo, Target
from sidecar.audit.lake_together import Part, write_together
from sidecar.audit.layers import BRONZE, SILVER_TABLES
from sidecar.audit.session import suited

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What was found, over the whole lake. `complete_since_ms`: of the state partition that is complete for the
    shortest time; None: every record is there, from the first one on. `lost`: offsets that were gone from the topic
    before the lake had them."""

    proven: int
    possible: int
    stale_writes: int
    unreadable: int
    missing: int
    lost: int
    complete_since_ms: int | None
    groups: int
    records: int

    @property
    def findings(self) -> int:
        return self.proven + self.stale_writes

    @property
    def complete(self) -> bool:
        return not (self.missing or self.lost or self.unreadable)


def audit(
    spark: SparkSession, source: str, lake: Lake, options: Mapping[str, str] | None = None, say: Say = lambda text: None
) -> Batch:
    """Read what is new, and bring gold up to date. Raises AuditError."""
    batch = ingest(spark, source, lake, options)
    lake = Lake.at(lake.base)  # the topic may have been re-created
    if batch.new:
        say(f"batch {batch.number}: {batch.records:,} records of {batch.source}")
    make_gold(spark, lake, say)
    return last_batch(lake)


def to_do(source: str, lake: Lake, options: Mapping[str, str] | None = None) -> int:
    """About how many records `audit` would have to do with; 0: everything is up to date. It needs no Spark. Raises
    AuditError."""
    behind = lake.last_batch() >= 0 and not _up_to_date(lake)
    return waiting(source, lake, options) + (sum(f.rows for f in lake.files(BRONZE)) if behind else 0)


def make_gold(spark: SparkSession, lake: Lake, say: Say = lambda text: None) -> int:
    """Bring gold up to where silver is; returns how many batches that took."""
    made = 0
    with lake.lock():
        lake.setup(list(GOLD.values()))
        while (n := _done(lake) + 1) <= lake.last_batch():
            with suited(spark, _rows_of(lake, n)) as large:
                _batch(spark, lake, n, large)
            made += 1
            say(f"batch {n}: gold is up to date")
    return made


def _up_to_date(lake: Lake) -> bool:
    return _done(lake) == lake.last_batch()


def _done(lake: Lake) -> int:
    """The last batch that every table of gold has."""
    return min(lake.committed(t) for t in GOLD.values())


def _rows_of(lake: Lake, n: int) -> int:
    """What batch n has to do with: its own rows, and those that the batch before has left."""
    own = sum(f.rows for table in SILVER_TABLES.values() for f in lake.files(table, n))
    before: int = sum(pq.read_metadata(f).num_rows for f in _left(lake, n - 1).glob("*/*.parquet"))
    return own + before


def _left(lake: Lake, batch: int) -> Path:
    return lake.root / "_carried" / f"{batch:08d}"


def _batch(spark: SparkSession, lake: Lake, n: int, large: bool) -> None:
    folded = fold(_silver(spark, lake, n), _carried(spark, lake, n - 1), large)
    left = _left(lake, n)
    making = left.with_name(f"{left.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    carried = [(Target(CARRIED[name], str(making / name), ""), rows) for name, rows in folded.carried.items()]
    targets = [lake.target(table, n) for table in GOLD.values() if lake.committed(table) < n]
    for target in targets:
        lake.sweep(target.table, n)
    files = _written([*carried, *((t, _rows(folded, t.table)) for t in targets)], lake.root, large)
    if not left.is_dir():
        making.rename(left)
    for target, written in zip(targets, files[len(carried) :], strict=True):
        lake.replace(target, written, n)
    spark.catalog.clearCache()
    for old in left.parent.iterdir():
        if old != left:
            shutil.rmtree(old)


def _written(parts: Sequence[Part], folder: Path, large: bool) -> list[list[FileInfo]]:
    """Of a small batch all tables in one job, which costs least. Of a large one each by itself: in a frame that all
    share, most columns of a row are another table's."""
    if not large:
        return write_together(parts, folder)
    return [files for part in parts for files in write_together([part], folder)]


def _rows(folded: Folded, table: Table) -> DataFrame:
    rows = folded.added[table.name]
    return rows.unionAll(folded.open[table.name]) if table.open else rows


def _silver(spark: SparkSession, lake: Lake, n: int) -> dict[str, DataFrame]:
    """The batch's tables that have rows; at least one table."""
    found = {}
    for name, table in SILVER_TABLES.items():
        paths = [f.path for f in lake.files(table, n) if f.rows]
        if paths:
            found[name] = spark.read.schema(table.ddl).parquet(*paths)
    return found or {"schemas": spark.createDataFrame([], SILVER_TABLES["schemas"].ddl)}


def _carried(spark: SparkSession, lake: Lake, n: int) -> dict[str, DataFrame]:
    """The tables that have rows."""
    folder = _left(lake, n)
    if not folder.is_dir():
        return {}
    return {
        name: spark.read.schema(t.ddl).parquet(str(folder / name))
        for name, t in CARRIED.items()
        if any(pq.read_metadata(f).num_rows for f in (folder / name).glob("*.parquet"))
    }


def verdict(lake: Lake) -> Verdict:
    """What the lake says. It reads little: findings, and a row for each group."""
    overlaps = lake.read_arrow(GOLD["second_owners"], ["grade"]).column("grade").to_pylist()
    covered = lake.read_arrow(GOLD["coverage"]).to_pylist()
    partitions = [c for c in covered if c["scope"] == "partition"]
    groups = {c["group_id"] for c in covered if c["scope"] == "group" and c["group_id"]}
    since = [c["complete_since_ms"] for c in partitions if c["complete_since_ms"] is not None]
    batches = [Batch.of(said) for n in range(lake.last_batch() + 1) if (said := lake.batch(n)) is not None]
    lost = sum(end - begin for b in batches for begin, end in b.lost.values())
    return Verdict(
        proven=overlaps.count("proven"),
        possible=overlaps.count("possible"),
        stale_writes=sum(f.rows for f in lake.files(GOLD["stale_writes"])),
        unreadable=sum(f.rows for f in lake.files(GOLD["unreadable"])),
        missing=sum(c["missing"] for c in partitions),
        lost=lost,
        complete_since_ms=max(since, default=None),
        groups=len(groups),
        records=sum(f.rows for f in lake.files(BRONZE)),
    )
