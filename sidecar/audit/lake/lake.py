"""The lake: bronze, silver and gold tables below one folder, written batch by batch, each batch exactly once.

    lake.json                            format, and which incarnation of the topic is read by default
    bronze/records/day=…/state_partition=…/…
    silver/current/…, silver/members/…   (tables/layers.py)
    gold/…
    _batches/00000003.ATTEMPT.json       what an attempt at batch 3 has read, written before bronze is committed
    _batches/00000003.json               that batch 3 is done: offsets, counts
    _batches/packed-….json               records of batches before, once run/maintain.py has packed them
    incarnation-1/…                      the same again, of a topic that was re-created

Executors write files straight from Arrow and report them to the driver, which makes them visible in one
transaction for each table. What a killed attempt leaves is never visible, and maintenance removes it. The folder is on
a file system that the driver and all executors share, or in an object store (storage.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.batch import NOTHING, Batch
from sidecar.audit.lake.delta import DeltaTables, placed
from sidecar.audit.lake.files import FileInfo, batch_of, dataset, in_duckdb, listed
from sidecar.audit.lake.storage import Folder, folder_at, put_json, read_json, uri_of
from sidecar.audit.tables.columns import Table

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

FORMAT = "delta"
RETENTION_HOURS = 7 * 24
GLOB = re.compile(r"[][{}*]")
"""Wildcards of Hadoop in a path."""


def is_lake(folder: Folder) -> bool:
    return (folder / "lake.json").is_file()


class Lake(DeltaTables):
    """`base`: its folder; `root`: that of the incarnation."""

    def __init__(self, base: Folder, incarnation: int) -> None:
        super().__init__(base if incarnation == 0 else base / f"incarnation-{incarnation}")
        self.base, self.incarnation = base, incarnation

    @classmethod
    def at(cls, uri: str | PathLike[str], incarnation: int | None = None) -> Lake:
        """A folder, or the URI of one in an object store; delta://FOLDER is the same as FOLDER. Raises AuditError."""
        base = folder_at(str(uri))
        try:
            known = read_json(base / "lake.json") if is_lake(base) else {}
        except OSError as exc:
            raise AuditError(f"{base} cannot be read: {exc}") from exc
        if known.get("format", FORMAT) != FORMAT:
            raise AuditError(
                f"{base} is a lake of plain Parquet files, which this version does not keep any more. Run the audit"
                " anew into another folder: from the topic, or, with what compaction has removed since, from its"
                f" bronze: `sidecar audit run --from parquet://{base}/bronze/records --lake FOLDER`"
            )
        return cls(base, known.get("incarnation", 0) if incarnation is None else incarnation)

    def setup(self, tables: Sequence[Table] = ()) -> None:
        """Make the lake and these tables, if they are not there."""
        if not is_lake(self.base):
            self._put(self.incarnation)
        for table in tables:
            self.create(table)

    def next_incarnation(self) -> Lake:
        """Begin anew, for a topic that was re-created. What there is stays where it is."""
        self._put(self.incarnation + 1)
        return Lake.at(self.base)

    def _put(self, incarnation: int) -> None:
        try:
            put_json(self.base / "lake.json", {"format": FORMAT, "incarnation": incarnation, "version": 1})
        except OSError as exc:
            raise AuditError(f"{self.base} cannot be made: {exc.strerror or exc}") from exc

    # ---- batches ------------------------------------------------------------------------------------------
    @property
    def records(self) -> Folder:
        return self.root / "_batches"

    def record(self, batch: int, attempt: int | None = None) -> Folder:
        return self.records / f"{batch:08d}{'' if attempt is None else f'.{attempt:016x}'}.json"

    @property
    def packed(self) -> list[Folder]:
        """Files with records of batches, shortened: those that have none of their own any more."""
        return list(self.records.glob("packed*.json"))

    def last_batch(self) -> int:
        """Number of the last batch that is done in all tables of bronze and silver; -1: none."""
        return max((int(p.stem) for p in self.records.glob("*.json") if p.stem.isdigit()), default=-1)

    def batch(self, number: int | None = None) -> Batch:
        """Returns the done batch of that number, or the last one; NOTHING if there is none."""
        path = self.record(self.last_batch() if number is None else number)
        return msgspec.convert(read_json(path), Batch, strict=False) if path.is_file() else NOTHING

    def batches(self) -> list[Batch]:
        """Returns all done batches, in their order. Reads packed ones last: maintenance may pack others meanwhile."""
        try:
            own = [self.batch(int(path.stem)) for path in self.records.glob("????????.json")]
            packed = msgspec.convert(list(chain.from_iterable(map(read_json, self.packed))), list[Batch], strict=False)
        except FileNotFoundError:  # maintenance has put it into another one since it was listed
            return self.batches()
        batches = {batch.number: batch for batch in (*own, *packed) if batch is not NOTHING}
        return [batches[number] for number in sorted(batches)]

    def done(self, tables: Iterable[Table]) -> int:
        """Number of the last batch that all of these have."""
        return min(self.committed(table) for table in tables)

    # ---- reading ------------------------------------------------------------------------------------------
    def require(self) -> None:
        """Raises AuditError if the folder has no lake."""
        if not is_lake(self.base):
            raise AuditError(f"there is no lake in {self.base}: check the folder, or fill it with `sidecar audit run`")

    def files(self, table: Table, batch: int | None = None) -> list[FileInfo]:
        """All files that are visible now, or those that this batch wrote."""
        opened = self._log(table)
        if opened is None:
            self.require()
            return []
        files = placed(self.folder(table), opened.log)
        return [f for f in files if batch is None or batch_of(f.path) == batch]

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """Without a jar: the files that count are read as Parquet."""
        paths = [GLOB.sub(r"\\\g<0>", uri_of(f.path)) for f in self.files(table)]
        if not paths:
            return spark.createDataFrame([], table.ddl)
        base = uri_of(self.folder(table))
        return spark.read.schema(table.ddl).option("basePath", base).parquet(*paths).select(*table.names)

    def read_arrow(self, table: Table, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """`where`: an expression of pyarrow.dataset."""
        paths = [f.path for f in self.files(table)]
        names = list(columns or table.names)
        if not paths:
            return table.arrow.empty_table().select(names)
        try:
            rows = dataset(table, paths, str(self.folder(table))).to_table(columns=names, filter=where)
        except (OSError, pa.ArrowInvalid) as exc:
            again = "" if table.layer == "bronze" else "; or fill another lake from this one's bronze"
            what = f"{table.layer}.{table.name} cannot be read: {exc}"
            raise AuditError(f"{what}. Put the file back from a backup{again}.") from exc
        lacking = [n for n in names if rows[n].null_count and not table.arrow.field(n).nullable]
        if lacking:
            raise AuditError(f"{table.layer}.{table.name} is of an earlier version, without {lacking[0]}: run again.")
        return rows

    def sql(self, table: Table, db: Any = None) -> str:
        """The table in this DuckDB, or in any, as what may follow FROM. It names files, so it is of one moment."""
        paths = [f.path for f in self.files(table)]
        if db is None:
            return listed(table, paths)
        return in_duckdb(db, table, paths, str(self.folder(table)))
