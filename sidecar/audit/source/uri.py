"""Sources of bronze records: kafka://HOST:PORT | delta://FOLDER | s3://… | parquet://FOLDER | file://FILE.

All yield the same rows. `delta`, or the URI of an object store, is a lake or the bronze table of one; `parquet` is any
folder of Parquet files with bronze's columns. `file` is a plain dump (dump.py), which `sidecar state dump` writes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache, partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.delta import delta_files
from sidecar.audit.lake.files import folders_of
from sidecar.audit.lake.lake import Lake, is_lake
from sidecar.audit.lake.storage import SCHEMES, Folder, file_system, folder_at, is_remote
from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import ENDINGS, files_below, read_dump, records_of
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.options import RUN, Ranges, Split, check_options
from sidecar.audit.source.topic import AT_ONCE
from sidecar.audit.tables.columns import DATE, INT, LONG, TEXT
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE


def open_source(uri: str, options: Mapping[str, str] | None = None, known: tuple[str, ...] = RUN) -> Source:
    """Returns the source at a URI. `known`: names of options. Raises AuditError, which lists the valid forms."""
    check_options(options or {}, known)
    scheme, separator, rest = uri.partition("://")
    if separator:
        if scheme == "kafka":
            return KafkaSource.of(rest, options or {})
        if scheme in SCHEMES:
            return CopySource("delta", folder_at(uri))
        if scheme == "delta":
            return CopySource(scheme, folder_at(rest) if is_remote(rest) else _folder(rest))
        if scheme == "parquet":
            return CopySource(scheme, _folder(rest))
        if scheme == "file":
            return DumpSource(_folder(rest))
    raise AuditError(
        f"{uri!r} is no source: kafka://HOST:PORT, delta://FOLDER, s3://BUCKET/FOLDER, parquet://FOLDER or file://FILE"
    )


def _folder(path: str) -> Path:
    folder = Path(path).absolute()
    if not folder.exists():
        raise AuditError(f"{folder} does not exist")
    return folder


# ---- Parquet files --------------------------------------------------------------------------------------------------
AT_A_TIME = {"batch_size": AT_ONCE, "batch_readahead": 1}
PLACE = ("state_partition", "offset")


@cache
def _folders() -> Any:
    """Returns the columns that may be in the names of folders."""
    import pyarrow.dataset as ds  # imports pandas, which takes half a second

    return ds.partitioning(pa.schema([f for f in BRONZE.arrow if f.type in (INT, LONG, TEXT, DATE)]), flavor="hive")


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raises AuditError for what Arrow raises while it reads the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as exc:
        raise AuditError(f"{path} cannot be read: {exc}") from exc


def _fragment(path: str, folders: str) -> Any:
    """Returns a file, not yet opened. `folders`: names of its folders, as day=2026-11-23/state_partition=3."""
    import pyarrow.dataset as ds

    store, name = file_system(path)
    with _readable(path):
        return ds.ParquetFileFormat().make_fragment(name, store, _folders().parse(f"/{folders}/file"))


def _in_folders(fragment: Any) -> dict[str, Any]:
    """Returns the values of columns that are in the names of the file's folders."""
    import pyarrow.dataset as ds

    return dict(ds.get_partition_keys(fragment.partition_expression))


def _rows(fragment: Any, ranges: Ranges) -> Iterator[Any]:
    """Yields the rows of the fragment's row groups in these ranges, with bronze's types."""
    with _readable(fragment.path):
        for batch in fragment.to_batches(BRONZE.arrow, filter=_within(ranges), **AT_A_TIME):
            if len(batch):
                yield batch


def _within(ranges: Ranges) -> Any:
    """Returns the condition that an offset is in these ranges, as an expression of Arrow."""
    p, offset = pc.field("state_partition"), pc.field("offset")
    parts = [(p == one) & (offset >= start) & (offset < end) for one, (start, end) in ranges.items()]
    return reduce(operator.or_, parts, pc.scalar(False))


@dataclass(frozen=True)
class CopySource:
    """Bronze as Parquet files: a lake, a Delta table or a folder. `days`, `groups` limit what is read (empty: all)."""

    scheme: str
    folder: Folder
    days: tuple[date, date] = (date.min, date.max)
    groups: frozenset[str] = frozenset()

    @property
    def shown(self) -> str:
        return str(self.folder) if is_remote(self.folder) else f"{self.scheme}://{self.folder}"

    def identity(self) -> str:
        return Lake.at(self.folder).identity() if is_lake(self.folder) else ""

    def files(self) -> list[Any]:
        """Returns the files that can have a record of these days and groups, as fragments. Raises AuditError for one
        that is no copy."""
        theirs, (first, last) = self._partitions(), self.days
        files = []
        for fragment in self._all():
            known = _in_folders(fragment)
            day, partition = known.get("day"), known.get("state_partition")
            if (day is None or first <= day <= last) and (partition is None or not theirs or partition in theirs):
                with _readable(fragment.path):
                    columns = {*fragment.physical_schema.names, *known}
                if missing := [n for n in BRONZE.names if n not in columns]:
                    raise AuditError(f"{fragment.path} has no column {missing[0]}: it is no copy of the state topic")
                files.append(fragment)
        return files

    def _partitions(self) -> set[int]:
        """Returns the state partitions of the groups, by gold's `coverage`; empty if it does not know all of them."""
        if not self.groups or not is_lake(self.folder):
            return set()
        where = pc.field("group_id").isin(sorted(self.groups))
        rows = Lake.at(self.folder).read_arrow(GOLD["coverage"], ["state_partition", "group_id"], where).to_pylist()
        known = self.groups == {row["group_id"] for row in rows}
        return {row["state_partition"] for row in rows} if known else set()

    def _all(self) -> list[Any]:
        if self.scheme == "parquet":
            folder = Path(self.folder)
            paths = files_below(folder, (".parquet",), hidden=("_", "."))
            return [_fragment(str(p), p.relative_to(folder).parent.as_posix()) for p in paths]
        if is_lake(self.folder):
            files = Lake.at(self.folder).files(BRONZE)
        elif (self.folder / "_delta_log").is_dir():
            files = delta_files(self.folder)
        else:
            raise AuditError(f"{self.shown} is neither a lake nor a Delta table. Parquet files are parquet://FOLDER")
        return [_fragment(f.path, "/".join(folders_of(f.partition))) for f in files]

    def bounds(self) -> dict[int, tuple[int, int]]:
        ranges: dict[int, tuple[int, int]] = {}
        for fragment in self.files():
            known = {name: (value, value) for name, value in _in_folders(fragment).items()}
            with _readable(fragment.path):
                for g in range(fragment.metadata.num_row_groups):
                    p, offset = (known.get(name) or _extent(fragment.metadata, g, name) for name in PLACE)
                    if p and offset and p[0] == p[1]:
                        _widen(ranges, p[0], offset[0], offset[1] + 1)
                        continue
                    rows = fragment.subset(row_group_ids=[g]).to_table(BRONZE.arrow, columns=list(PLACE))
                    made = rows.group_by(PLACE[0]).aggregate([(PLACE[1], "min"), (PLACE[1], "max")])
                    for row in made.to_pylist():
                        _widen(ranges, row["state_partition"], row["offset_min"], row["offset_max"] + 1)
        return ranges

    def splits(self, ranges: Ranges) -> list[Split]:
        splits: list[Split] = []
        for fragment in self.files():
            # An expression of all ranges takes longer than a small file, and a folder has one partition.
            p = _in_folders(fragment).get("state_partition")
            theirs = ranges if p is None else {p: ranges[p]} if p in ranges else {}
            with _readable(fragment.path):
                some = fragment.subset(_within(theirs), schema=BRONZE.arrow) if theirs else None
                if some is not None and some.row_groups:
                    splits.append(partial(_rows, some, theirs))
        return splits


def _extent(metadata: Any, row_group: int, column: str) -> tuple[int, int] | None:
    """Returns a column's least and greatest value; None if the file has no statistics of them."""
    about = metadata.row_group(row_group).column(metadata.schema.names.index(column)).statistics
    return (about.min, about.max) if about is not None and about.has_min_max else None


def _widen(ranges: dict[int, tuple[int, int]], partition: int, low: int, high: int) -> None:
    before = ranges.get(partition, (low, high))
    ranges[partition] = (min(low, before[0]), max(high, before[1]))


# ---- plain dumps ----------------------------------------------------------------------------------------------------
def _rows_of_dump(path: Path, ranges: Ranges) -> Iterator[Any]:
    records = records_of(path)
    while chunk := list(islice(records, AT_ONCE)):
        limits = (ranges.get(r.partition, (0, 0)) for r in chunk)
        wanted = [r for r, (start, end) in zip(chunk, limits, strict=True) if start <= r.offset < end]
        if wanted:
            yield bronze_batch(wanted)


@dataclass(frozen=True)
class DumpSource:
    path: Path

    @property
    def shown(self) -> str:
        return f"file://{self.path}"

    def identity(self) -> str:
        return ""

    def bounds(self) -> dict[int, tuple[int, int]]:
        ranges: dict[int, tuple[int, int]] = {}
        for r in read_dump(self.path):
            _widen(ranges, r.partition, r.offset, r.offset + 1)
        return ranges

    def splits(self, ranges: Ranges) -> list[Split]:
        return [partial(_rows_of_dump, p, ranges) for p in files_below(self.path, ENDINGS)] if ranges else []


Source = KafkaSource | CopySource | DumpSource
"""`identity` stays the same as long as offsets mean the same records, and is empty if the source has none; `bounds` has
each state partition's first offset, and the one behind its last."""
