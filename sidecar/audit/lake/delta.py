"""Tables of the lake, in Delta's format by delta-rs: one transaction for each batch, which no batch makes twice.

Delta's protocol alone decides between writers: an entry of the log is put only if there is none of that number, and
two transactions of the same batch exclude each other. So nothing is locked, on any storage.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.files import FileInfo, Target, batch_name, batch_of, partition_text
from sidecar.audit.lake.storage import Folder, ObjectFolder, folder_at
from sidecar.audit.tables.columns import Table

APP = "group-state-audit"
"""In Delta's log each batch is a transaction of this application, with its number as version."""
ATTEMPT = "group-state-audit-attempt"
"""A second application in Delta's log. Its version is the number of the attempt that made the batch."""
KEPT, APPEND_ONLY = {"delta.logRetentionDuration": "interval 7 days"}, {"delta.appendOnly": "true"}
WRITTEN = WriterProperties(compression="ZSTD", compression_level=1)


class _Opened(NamedTuple):
    """A log that has been read. `made`: when the last entry that was read was made, which tells whether it is the same
    log still; `batch`: the last batch by then, which takes as long to find as the entries to read."""

    log: DeltaTable
    made: int | None
    batch: int

    @classmethod
    def of(cls, folder: Folder, log: DeltaTable) -> _Opened:
        batch = log.transaction_version(APP)
        return cls(log, _made(folder, log.version()), -1 if batch is None else batch)


class DeltaTables:
    def __init__(self, root: Folder) -> None:
        self.root = root
        self._opened: dict[str, _Opened] = {}

    def folder(self, table: Table) -> Folder:
        return self.root / table.layer / table.name

    def create(self, table: Table) -> _Opened:
        """Makes the table, empty, or adds the columns that an existing one lacks. Returns its log."""
        opened = self._log(table)
        if opened is not None:
            _complete(opened.log, table)
            return opened
        DeltaTable.create(
            str(self.folder(table)),
            Schema.from_arrow(table.arrow),
            mode="ignore",
            partition_by=list(table.by) or None,
            description=table.doc,
            configuration={**KEPT, **(APPEND_ONLY if table.layer == "bronze" else {})},
        )
        opened = self._log(table)
        assert opened is not None
        return opened

    def _log(self, table: Table) -> _Opened | None:
        """As it is now. It is opened once, unless somebody has made it anew: a batch looks into each log several times,
        and whoever opens one reads an entry for each batch since the last checkpoint."""
        folder = self.folder(table)
        known = self._opened.pop(str(folder), None)
        if known is None or known.made is None or _made(folder, known.log.version()) != known.made:
            log = _open(folder)
            known = None if log is None else _Opened.of(folder, log)
        elif _made(folder, (version := known.log.version()) + 1) is not None:
            known.log.update_incremental()
            known = known if known.log.version() == version else _Opened.of(folder, known.log)
        if known is not None:
            self._opened[str(folder)] = known
        return known

    def target(self, table: Table, batch: int) -> Target:
        return Target(table, str(self.folder(table)), batch_name(batch))

    def committed(self, table: Table) -> int:
        """Number of the last batch; -1: none."""
        opened = self._log(table)
        return -1 if opened is None else opened.batch

    def last(self, table: Table) -> tuple[int, int | None]:
        """Number of the last batch, and of the attempt that made it."""
        opened = self._log(table)
        return (-1, None) if opened is None else (opened.batch, opened.log.transaction_version(ATTEMPT))

    def commit(self, target: Target, files: Sequence[FileInfo], batch: int, attempt: int | None = None) -> bool:
        """Makes the files visible, and in the same transaction removes the rows that earlier batches left open. Returns
        False, with nothing done, if this batch was committed before."""
        table = target.table
        opened = self.create(table)
        if opened.batch >= batch:
            return False
        replaces = "open" in table.by
        done = [Transaction(APP, batch), *([] if attempt is None else [Transaction(ATTEMPT, attempt)])]
        try:
            opened.log.create_write_transaction(
                _added(files),
                mode="overwrite" if replaces else "append",
                schema=opened.log.schema(),
                partition_by=list(table.by),
                partition_filters=[("open", "=", "true")] if replaces else None,
                commit_properties=CommitProperties(app_transactions=done),
            )
        except CommitFailedError:
            if self.committed(table) < batch:
                raise
            return False
        return True

    def compact(self, table: Table, upto: int, full_bytes: int) -> tuple[int, int]:
        """Put small files together; returns how many became how many. Nothing is done while there are files of later
        batches than `upto`, which somebody has to find by their number. Open rows go soon, so they stay as they are."""
        log = _open(folder := self.folder(table))
        if log is None or any((batch_of(f.path) or 0) > upto for f in placed(folder, log)):
            return 0, 0
        _complete(log, table)  # compaction keeps only the columns that the log has
        try:
            done = log.optimize.compact(
                partition_filters=[("open", "=", "false")] if "open" in table.by else None,
                target_size=full_bytes,
                writer_properties=WRITTEN,
            )
        except CommitFailedError:  # somebody else has put them together
            return 0, 0
        except DeltaError as exc:
            raise AuditError(f"{table.layer}.{table.name} cannot be compacted: {exc}") from exc
        return done["numFilesRemoved"], done["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> list[str]:
        """Remove files that the log does not name, or names as removed, once they are so old; return which."""
        log = _open(self.folder(table))
        options: dict[str, Any] = {"retention_hours": hours, "enforce_retention_duration": False, "full": True}
        # A vacuum is two entries in the log, also if it finds nothing.
        if log is None or not log.vacuum(dry_run=True, **options):
            return []
        return log.vacuum(dry_run=False, **options)


def _complete(log: DeltaTable, table: Table) -> None:
    """Adds columns of a newer version, and newer fields within columns. Rows in older files have nulls there."""
    missing = _missing(log, table)
    try:
        if missing:
            log.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
    except CommitFailedError:
        log.update_incremental()
        if _missing(log, table):  # no other writer has added them
            raise


def _missing(log: DeltaTable, table: Table) -> list[Any]:
    known = pa.schema(log.schema().to_arrow())
    together = pa.unify_schemas([known, table.arrow], promote_options="permissive")
    return [f.with_nullable(True) for f in together if f.name not in known.names or f.type != known.field(f.name).type]


def _added(files: Sequence[FileInfo]) -> list[Any]:
    now = int(time.time() * 1000)
    return [AddAction(quote(f.path, safe="/="), f.size, dict(f.partition), now, True, f.stats) for f in files]


def delta_files(folder: Folder) -> list[FileInfo]:
    """The files of any Delta table, with paths that can be opened."""
    log = _open(folder_at(str(folder)))
    return [] if log is None else placed(folder, log)


def placed(folder: Folder, log: DeltaTable) -> list[FileInfo]:
    """Returns the files that count, with paths that can be opened."""
    by = log.metadata().partition_columns
    rows = pa.table(log.get_add_actions(flatten=True)).to_pylist()
    infos = []
    for row in sorted(rows, key=lambda r: str(r["path"])):
        path = str(folder / unquote(row["path"]))
        partition = tuple((n, partition_text(row.get(f"partition.{n}"))) for n in by)
        infos.append(FileInfo(path, row["size_bytes"], row.get("num_records") or 0, partition, ""))
    return infos


def _made(folder: Folder, version: int) -> int | None:
    """Returns when this entry of the log was made, in ns; None if it is not there. In an object store it is always 0:
    asking for an entry takes as long as reading what is new."""
    if isinstance(folder, ObjectFolder):
        return 0
    try:
        return (folder / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns
    except OSError:  # another error than a missing entry is raised when the table is opened
        return None


def _open(folder: Folder) -> DeltaTable | None:
    if not isinstance(folder, ObjectFolder) and not (folder / "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        return None
