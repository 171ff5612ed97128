"""The lake: bronze, silver and gold tables below one folder, written batch by batch, each batch exactly once.

    lake.json                            format, and which incarnation of the topic is read by default
    bronze/records/day=…/state_partition=…/…
    silver/current/…, silver/members/…   (layers.py)
    gold/…
    _batches/00000003.plan.json          what batch 3 reads, written before it begins
    _batches/00000003.json               that it is done: offsets, counts
    _batches/packed.json                 what is told of batches before, once maintenance has been there (maintain.py)
    incarnation-1/…                      the same again, of a topic that was re-created

Executors write files straight from Arrow and tell the driver what they wrote; the driver makes them visible in one
transaction for each table. What a killed attempt leaves is never visible. Files lie on a file system that the driver
and all executors share.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from sidecar.audit.columns import Table
from sidecar.audit.errors import AuditError
from sidecar.audit.lake_files import FileInfo, Target, batch_name, duck_type, no_rows
from sidecar.audit.lake_parquet import ParquetTables, put_json, read_json

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from sidecar.audit.lake_delta import DeltaTables

    Days = tuple[date, date]

FORMATS = ("delta", "parquet")
RETENTION_HOURS = 7 * 24
LOCK_WAIT_S = 60.0
"""Longer than maintenance keeps the lock of a lake at a time."""


def _locked(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unreadable(table: Table, exc: Exception) -> AuditError:
    """Of a file that the lake names, and that is not there or no Parquet."""
    again = "" if table.layer == "bronze" else "; or fill another lake from this one's bronze"
    return AuditError(f"{table.layer}.{table.name} cannot be read: {exc}. Put the file back from a backup{again}.")


def is_lake(folder: Path) -> bool:
    return (folder / "lake.json").is_file()


@dataclass(frozen=True)
class Lake:
    """`base`: its folder; `root`: that of the incarnation."""

    base: Path
    format: str
    incarnation: int
    tables: DeltaTables | ParquetTables = field(repr=False)

    @classmethod
    def at(cls, uri: str | Path, format: str = "", incarnation: int | None = None) -> Lake:
        """A folder, or delta://FOLDER or parquet://FOLDER. A lake that is there has its format; a new one is Delta by
        default. Raises AuditError."""
        scheme, separator, rest = str(uri).partition("://")
        base = Path(rest if separator else scheme).absolute()
        wanted = format or (scheme if separator else "")
        if wanted not in ("", *FORMATS):
            raise AuditError(f"a lake is {' or '.join(FORMATS)}, not {wanted}")
        said = read_json(base / "lake.json") if is_lake(base) else {}
        known = said.get("format", wanted or FORMATS[0])
        if wanted and wanted != known:
            raise AuditError(f"{base} is a {known} lake: leave the format out, or take another folder")
        number = said.get("incarnation", 0) if incarnation is None else incarnation
        root = base if number == 0 else base / f"incarnation-{number}"
        if known == "parquet":
            return cls(base, known, number, ParquetTables(root))
        from sidecar.audit.lake_delta import DeltaTables

        return cls(base, known, number, DeltaTables(root))

    @property
    def root(self) -> Path:
        return self.tables.root

    def setup(self, tables: Sequence[Table] = ()) -> None:
        """Make the lake and these tables, if they are not there."""
        if not is_lake(self.base):
            said = {"format": self.format, "incarnation": self.incarnation, "version": 1}
            try:
                put_json(self.base / "lake.json", said)
            except OSError as exc:
                raise AuditError(f"{self.base} cannot be made: {exc.strerror}") from exc
        for table in tables:
            self.tables.create(table)

    def next_incarnation(self) -> Lake:
        """Begin anew, for a topic that was re-created. What there is stays where it is."""
        number = self.incarnation + 1
        put_json(self.base / "lake.json", {"format": self.format, "incarnation": number, "version": 1})
        return Lake.at(self.base)

    def identity(self) -> str:
        """Of the topic that it has, by its last batch; empty if that is not known."""
        said = self.batch(self.last_batch())
        return "" if said is None else str(said["identity"])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time. The lock ends with its process. Raises AuditError if another has it for long."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            file = (self.root / "_lock").open("w")
        except OSError as exc:
            raise AuditError(f"{self.root} cannot be written: {exc.strerror}") from exc
        with file as f:
            end = time.monotonic() + LOCK_WAIT_S
            while not _locked(f):
                if time.monotonic() > end:
                    raise AuditError(f"another process writes to {self.root}: wait until it has ended")
                time.sleep(0.05)
            yield

    # ---- batches ------------------------------------------------------------------------------------------
    def record(self, batch: int, plan: bool = False) -> Path:
        return self.root / "_batches" / f"{batch:08d}{'.plan' if plan else ''}.json"

    @property
    def packed(self) -> Path:
        """Records of batches, shortened: those that have none of their own any more."""
        return self.record(0).with_name("packed.json")

    def last_batch(self) -> int:
        """Number of the last batch that is done in all tables of bronze and silver; -1: none."""
        found = (self.root / "_batches").glob("*.json")
        return max((int(p.stem) for p in found if p.stem.isdigit()), default=-1)

    def batch(self, number: int, plan: bool = False) -> dict[str, Any] | None:
        """What is recorded of it."""
        path = self.record(number, plan)
        return read_json(path) if path.exists() else None

    # ---- writing ------------------------------------------------------------------------------------------
    def committed(self, table: Table) -> int:
        """Number of the last batch that this table has; -1: none."""
        return self.tables.committed(table)

    def done(self, tables: Sequence[Table]) -> int:
        """Number of the last batch that all of these have."""
        return min(self.committed(table) for table in tables)

    def target(self, table: Table, batch: int) -> Target:
        """Where tasks write; then `commit`."""
        return self.tables.target(table, batch)

    def commit(self, target: Target, files: Sequence[FileInfo], batch: int) -> bool:
        """Make them visible. False: the table has this batch already, and nothing was done."""
        return self.tables.commit(target, files, batch)

    def replace(self, target: Target, files: Sequence[FileInfo], batch: int) -> bool:
        """The same, and in the same transaction the rows go that earlier batches left open."""
        table = target.table
        return self.tables.commit(target, files, batch, self.tables.open_files(table) if table.open else ())

    def sweep(self, table: Table, batch: int) -> None:
        self.tables.sweep(table, batch)

    def vacuum(self, tables: Sequence[Table], hours: int = RETENTION_HOURS) -> list[str]:
        """Remove files that no reader needs and that are so old; return which. Not while a batch is written."""
        with self.lock():
            return [path for table in tables for path in self.tables.vacuum(table, hours)]

    # ---- reading ------------------------------------------------------------------------------------------
    def files(
        self, table: Table, batch: int | None = None, days: Days | None = None, group: str = ""
    ) -> list[FileInfo]:
        """All files that are visible now, or those that this batch wrote. `days`, `group`: without those that cannot
        have a record of that day, or of that group: in bronze folders tell, elsewhere nothing does."""
        found = self.tables.files(table)
        if batch is not None:
            found = [f for f in found if batch_name(batch) in Path(f.path).name]
        if days is not None and "day" in table.by:
            found = [f for f in found if str(days[0]) <= str(dict(f.partition)["day"]) <= str(days[1])]
        if group and "state_partition" in table.by:
            theirs = self.partitions_of(group)
            found = [f for f in found if not theirs or str(dict(f.partition)["state_partition"]) in theirs]
        return found

    def partitions_of(self, group: str) -> set[str]:
        """The state partition that has the group, by gold's `coverage`; none if that does not know the group."""
        from sidecar.audit.gold.tables import GOLD

        where = ds.field("group_id") == group
        found = self.read_arrow(GOLD["coverage"], ["state_partition"], where).column("state_partition")
        return {str(p) for p in found.unique().to_pylist()}

    def read(self, spark: SparkSession, table: Table, days: Days | None = None, group: str = "") -> DataFrame:
        """Neither format needs a jar: the files that count are read as Parquet. `days`: the first and the last, of
        bronze; `group`: its rows only."""
        from pyspark.sql.functions import col

        paths = [f.path for f in self.files(table, None, days, group)]
        if not paths:
            return spark.createDataFrame([], table.ddl)
        base = str(self.tables.folder(table))
        rows = spark.read.schema(table.ddl).option("basePath", base).parquet(*paths).select(*table.names)
        return rows.where(col("group_id") == group) if group else rows

    def read_arrow(self, table: Table, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """`where`: an expression of pyarrow.dataset."""
        paths = [f.path for f in self.files(table)]
        names = list(columns or table.names)
        if not paths:
            return table.arrow.empty_table().select(names)
        folders = ds.partitioning(pa.schema([table.arrow.field(n) for n in table.by]), flavor="hive")
        base = str(self.tables.folder(table))
        try:
            found = ds.dataset(
                paths, schema=table.arrow, partitioning=folders, partition_base_dir=base, format="parquet"
            )
            return found.to_table(columns=names, filter=where)
        except (OSError, pa.ArrowInvalid) as exc:
            raise unreadable(table, exc) from exc

    def sql(self, table: Table) -> str:
        """The table in DuckDB, as what may follow FROM. It names files, so it is of one moment."""
        paths = [f.path for f in self.files(table)]
        names = ", ".join(f'"{n}"' for n in table.names)
        if not paths:
            return no_rows(table)
        listed = ", ".join("'" + p.replace("'", "''") + "'" for p in paths)
        types = ", ".join(f"'{c.name}': '{duck_type(c.type)}'" for c in table.columns if c.name in table.by)
        hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ", hive_partitioning = false"
        return f"(SELECT {names} FROM read_parquet([{listed}]{hive}))"
