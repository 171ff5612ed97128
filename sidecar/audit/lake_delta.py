"""Tables of the lake in Delta's format, by delta-rs: one transaction for each batch, which no batch makes twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from sidecar.audit.columns import Table
from sidecar.audit.lake_files import OPEN, FileInfo, Target, batch_name

APP = "group-state-audit"
"""In Delta's log each batch is a transaction of this application, with its number as version."""


class DeltaTables:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, table: Table) -> Path:
        return self.root / table.layer / table.name

    def create(self, table: Table) -> None:
        """Nothing is done if it is there. What a batch did not fill is an empty table, not a missing one."""
        if not (self.folder(table) / "_delta_log").is_dir():
            DeltaTable.create(
                str(self.folder(table)),
                Schema.from_arrow(table.arrow),
                mode="ignore",
                partition_by=list(table.by) or None,
                description=table.doc,
                configuration={"delta.appendOnly": "true"} if table.layer == "bronze" else None,
            )

    def target(self, table: Table, batch: int) -> Target:
        return Target(table, str(self.folder(table)), batch_name(batch))

    def committed(self, table: Table) -> int:
        """Number of the last batch; -1: none."""
        found = _open(self.folder(table))
        return -1 if found is None else _last(found)

    def commit(self, target: Target, files: Sequence[FileInfo], batch: int, gone: Sequence[FileInfo] = ()) -> bool:
        """False: this batch was committed before, and nothing was done."""
        table = target.table
        self.create(table)
        log = DeltaTable(str(self.folder(table)))
        if _last(log) >= batch:
            return False
        now = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(quote(f.path, safe="/="), f.size, dict(f.partition), now, True, f.stats) for f in files
        ]
        actions += [RemoveAction(f.path, True, now, f.size, dict(f.partition)) for f in gone]
        try:
            log.create_write_transaction(
                actions,
                mode="append",
                schema=log.schema(),
                partition_by=list(table.by),
                commit_properties=CommitProperties(app_transactions=[Transaction(APP, batch)]),
            )
        except CommitFailedError:
            log.update_incremental()
            if _last(log) < batch:
                raise
            return False
        return True

    def files(self, table: Table) -> list[FileInfo]:
        """With paths that can be opened."""
        return delta_files(self.folder(table))

    def open_files(self, table: Table) -> list[FileInfo]:
        """With paths as the log has them."""
        found = _open(self.folder(table))
        return [] if found is None else [f for f in _infos(found) if f.open]

    def sweep(self, table: Table, batch: int) -> None:
        """Remove what a broken attempt at this batch has left."""
        kept = {f.path for f in self.files(table)}
        for path in self.folder(table).rglob(f"*{batch_name(batch)}*.parquet"):
            if str(path) not in kept:
                path.unlink(missing_ok=True)

    def vacuum(self, table: Table, hours: int) -> list[str]:
        """Remove files that the log does not name, or names as removed, once they are so old; return which."""
        found = _open(self.folder(table))
        if found is None:
            return []
        return found.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


def delta_files(folder: Path) -> list[FileInfo]:
    """The files of any Delta table, with paths that can be opened."""
    found = _open(folder)
    if found is None:
        return []
    return [
        FileInfo(str(folder / unquote(f.path)), f.size, f.rows, f.partition, f.stats, f.open) for f in _infos(found)
    ]


def _infos(log: DeltaTable) -> list[FileInfo]:
    by = log.metadata().partition_columns
    rows = pa.table(log.get_add_actions(flatten=True)).to_pylist()
    found = []
    for row in sorted(rows, key=lambda r: str(r["path"])):
        path = str(row["path"])
        partition = tuple((n, _text(row.get(f"partition.{n}"))) for n in by)
        is_open = path.rsplit("/", 1)[-1].startswith(OPEN)
        found.append(FileInfo(path, row["size_bytes"], row.get("num_records") or 0, partition, "", is_open))
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _open(folder: Path) -> DeltaTable | None:
    if not (folder / "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        return None


def _last(log: DeltaTable) -> int:
    found = log.transaction_version(APP)
    return -1 if found is None else found
