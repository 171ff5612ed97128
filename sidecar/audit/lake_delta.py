"""Tables of the lake in Delta's format, by delta-rs: one transaction for each batch, which no batch makes twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from sidecar.audit.columns import Table
from sidecar.audit.lake_files import MERGED, OPEN, FileInfo, Target, batch_name

APP = "group-state-audit"
"""In Delta's log each batch is a transaction of this application, with its number as version."""
KEPT, APPEND_ONLY = {"delta.logRetentionDuration": "interval 7 days"}, {"delta.appendOnly": "true"}


@dataclass
class _Opened:
    """A log that has been read. `made`: when it was begun; `batch`: a version of it, and the last batch by then."""

    log: DeltaTable
    made: int | None
    batch: tuple[int, int] = (-1, -1)

    def last(self) -> int:
        """Number of the last batch. The entries are read again to find it, so once for each version."""
        version = self.log.version()
        if self.batch[0] != version:
            self.batch = (version, _last(self.log))
        return self.batch[1]


class DeltaTables:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._opened: dict[Path, _Opened] = {}

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
                configuration={**KEPT, **(APPEND_ONLY if table.layer == "bronze" else {})},
            )

    def _log(self, table: Table) -> _Opened | None:
        """As it is now. It is opened once, unless somebody has made it anew: a batch looks into each log several times,
        and whoever opens one reads an entry for each batch since the last checkpoint."""
        folder = self.folder(table)
        made, known = _made(folder), self._opened.pop(folder, None)
        if known is not None and made is not None and known.made == made:
            known.log.update_incremental()
        elif (log := _open(folder)) is not None:
            known = _Opened(log, made)
        else:
            return None
        self._opened[folder] = known
        return known

    def target(self, table: Table, batch: int) -> Target:
        return Target(table, str(self.folder(table)), batch_name(batch))

    def committed(self, table: Table) -> int:
        """Number of the last batch; -1: none."""
        found = self._log(table)
        return -1 if found is None else found.last()

    def commit(self, target: Target, files: Sequence[FileInfo], batch: int, gone: Sequence[FileInfo] = ()) -> bool:
        """False: this batch was committed before, and nothing was done."""
        table = target.table
        self.create(table)
        opened = self._log(table)
        assert opened is not None
        if opened.last() >= batch:
            return False
        about = CommitProperties(app_transactions=[Transaction(APP, batch)])
        try:
            _write(opened.log, table, _actions(files, gone, changes=True), about)
        except CommitFailedError:
            opened.log.update_incremental()
            if opened.last() < batch:
                raise
            return False
        return True

    def files(self, table: Table) -> list[FileInfo]:
        """With paths that can be opened."""
        folder = self.folder(table)
        return [_with_place(folder, f) for f in self.listed(table)]

    def place(self, table: Table, file: FileInfo) -> Path:
        """Where a file lies whose path is as the log has it."""
        return self.folder(table) / unquote(file.path)

    def open_files(self, table: Table) -> list[FileInfo]:
        """With paths as the log has them."""
        return [f for f in self.listed(table) if f.open]

    def listed(self, table: Table) -> list[FileInfo]:
        """With paths as the log has them."""
        found = self._log(table)
        return [] if found is None else _infos(found.log)

    def merging(self, table: Table) -> Target:
        """Where files go that take the place of several."""
        return Target(table, str(self.folder(table)), MERGED)

    def swap(self, target: Target, files: Sequence[FileInfo], gone: Sequence[FileInfo]) -> None:
        """In one transaction, the same rows in other files."""
        log = DeltaTable(str(self.folder(target.table)))
        _write(log, target.table, _actions(files, gone, changes=False), None)

    def pack(self, table: Table) -> None:
        """A checkpoint in the place of all entries of the log so far; they go when they are so old."""
        folder = self.folder(table)
        if len(list((folder / "_delta_log").glob("*.json"))) > 1:
            log = DeltaTable(str(folder))
            log.create_checkpoint()
            log.cleanup_metadata()

    def sweep(self, table: Table, batch: int) -> None:
        """Remove what a broken attempt at this batch has left."""
        kept = {f.path for f in self.files(table)}
        for path in self.folder(table).rglob(f"*{batch_name(batch)}*.parquet"):
            if str(path) not in kept:
                path.unlink(missing_ok=True)

    def vacuum(self, table: Table, hours: int) -> list[str]:
        """Remove files that the log does not name, or names as removed, once they are so old; return which."""
        found = _open(self.folder(table))
        said: dict[str, Any] = {"retention_hours": hours, "enforce_retention_duration": False, "full": True}
        # A vacuum is two entries in the log, also if it finds nothing.
        if found is None or not found.vacuum(dry_run=True, **said):
            return []
        return found.vacuum(dry_run=False, **said)


def _actions(files: Sequence[FileInfo], gone: Sequence[FileInfo], changes: bool) -> list[Any]:
    now = int(time.time() * 1000)
    added = [AddAction(quote(f.path, safe="/="), f.size, dict(f.partition), now, changes, f.stats) for f in files]
    return [*added, *(RemoveAction(f.path, changes, now, f.size, dict(f.partition)) for f in gone)]


def _write(log: DeltaTable, table: Table, actions: list[Any], about: CommitProperties | None) -> None:
    log.create_write_transaction(
        actions, mode="append", schema=log.schema(), partition_by=list(table.by), commit_properties=about
    )


def delta_files(folder: Path) -> list[FileInfo]:
    """The files of any Delta table, with paths that can be opened."""
    log = _open(folder)
    return [] if log is None else [_with_place(folder, f) for f in _infos(log)]


def _with_place(folder: Path, f: FileInfo) -> FileInfo:
    return replace(f, path=str(folder / unquote(f.path)))


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


def _made(folder: Path) -> int | None:
    """When its log was begun; None: that entry is gone, or cannot be seen, or there is no table."""
    try:
        return (folder / "_delta_log" / f"{0:020d}.json").stat().st_mtime_ns
    except OSError:  # whoever opens the table is told what is wrong with it
        return None


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
