"""Sources of bronze records: kafka://HOST:PORT | delta://FOLDER | s3://… | parquet://FOLDER | file://FILE.

All yield the same rows. `delta`, or the URI of an object store, is a lake or the bronze table of one; `parquet` is any
folder of Parquet files with bronze's columns. `file` is a plain dump (dump.py), which `sidecar state dump` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.batch import Ranges
from sidecar.audit.lake.delta import delta_files
from sidecar.audit.lake.files import NO_VALUE, FileInfo, Partition
from sidecar.audit.lake.lake import Lake, is_lake
from sidecar.audit.lake.storage import SCHEMES, Folder, folder_at, is_remote
from sidecar.audit.source.bronze import bounds_of, bronze_batch, rows_of
from sidecar.audit.source.dump import ENDINGS, files_below, read_dump, records_of
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.options import RUN, Split, check_options
from sidecar.audit.source.topic import AT_ONCE
from sidecar.audit.tables.columns import INT, LONG
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
@contextmanager
def _readable(file: FileInfo) -> Iterator[None]:
    """Raises AuditError for what Arrow raises while it reads the file, also for a null where a column has none."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as exc:
        raise AuditError(f"{file.path} cannot be read: {exc}") from exc


def _rows(file: FileInfo, groups: Sequence[int], ranges: Ranges) -> Iterator[Any]:
    """Yields the rows of the file's row groups in these ranges."""
    first, end = (pa.array(ends, LONG) for ends in zip(*ranges.values(), strict=True))
    with _readable(file):
        for batch in rows_of(file, groups):
            place, offset = pc.index_in(batch["state_partition"], pa.array(ranges, INT)), batch["offset"]
            wanted = batch.filter(pc.and_(pc.less_equal(first.take(place), offset), pc.less(offset, end.take(place))))
            if len(wanted):
                yield wanted


def _partition(path: Path) -> Partition:
    """Returns the columns that are in the names of a file's folders, as day=2026-11-23/state_partition=3."""
    pairs = [name.partition("=") for name in path.parts[:-1]]
    return tuple((n, None if text == NO_VALUE else unquote(text)) for n, equals, text in pairs if equals)


def _bounds(file: FileInfo) -> list[Ranges]:
    """Returns the bounds of each row group. A file is opened once for all batches, unless it has changed; nobody
    changes an object of a store."""
    return _bounds_at(file, 0 if is_remote(file.path) else Path(file.path).stat().st_mtime_ns)


@lru_cache(maxsize=100_000)
def _bounds_at(file: FileInfo, changed_ns: int) -> list[Ranges]:
    return bounds_of(file)


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
        return Lake.at(self.folder).batch().identity if is_lake(self.folder) else ""

    def files(self) -> Iterator[tuple[FileInfo, list[Ranges]]]:
        """Yields the files that can have a record of these days and groups, with the bounds of their row groups. Raises
        AuditError for one that is no copy."""
        theirs, (first, last) = self._partitions(), self.days
        for file in self._all():
            known = dict(file.partition)
            day, partition = known.get("day"), known.get("state_partition")
            with _readable(file):
                if day is not None and not first <= date.fromisoformat(day) <= last:
                    continue
                bounds = _bounds(file) if not theirs or partition is None or partition in theirs else []
            if bounds:
                yield file, bounds

    def _partitions(self) -> set[str]:
        """Returns the state partitions of the groups, by gold's `coverage`; empty if it does not know all of them."""
        if not self.groups or not is_lake(self.folder):
            return set()
        where = pc.field("group_id").isin(sorted(self.groups))
        rows = Lake.at(self.folder).read_arrow(GOLD["coverage"], ["state_partition", "group_id"], where).to_pylist()
        known = self.groups == {row["group_id"] for row in rows}
        return {str(row["state_partition"]) for row in rows} if known else set()

    def _all(self) -> list[FileInfo]:
        if self.scheme == "parquet":
            folder = Path(self.folder)
            paths = files_below(folder, (".parquet",), hidden=("_", "."))
            return [FileInfo(str(p), 0, 0, _partition(p.relative_to(folder)), "") for p in paths]
        if is_lake(self.folder):
            return Lake.at(self.folder).files(BRONZE)
        if (self.folder / "_delta_log").is_dir():
            return delta_files(self.folder)
        raise AuditError(f"{self.shown} is neither a lake nor a Delta table. Parquet files are parquet://FOLDER")

    def bounds(self) -> Ranges:
        ranges: Ranges = {}
        for p, ends in chain.from_iterable(bounds.items() for _, groups in self.files() for bounds in groups):
            _widen(ranges, p, *ends)
        return ranges

    def splits(self, ranges: Ranges) -> list[Split]:
        splits: list[Split] = []
        for file, groups in self.files():
            wanted = [g for g, bounds in enumerate(groups) if any(_meet(bounds, ranges, p) for p in bounds)]
            if wanted:
                splits.append(partial(_rows, file, wanted, ranges))
        return splits


def _meet(one: Ranges, other: Ranges, p: int) -> bool:
    return p in other and one[p][0] < other[p][1] and other[p][0] < one[p][1]


def _widen(ranges: Ranges, partition: int, low: int, high: int) -> None:
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
