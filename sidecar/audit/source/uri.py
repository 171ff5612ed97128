"""Sources of bronze records: kafka://HOST:PORT | delta://FOLDER | s3://… | parquet://FOLDER | file://FILE.

All yield the same rows. `delta`, or the URI of an object store, is a lake or the bronze table of one; `parquet` is any
folder of Parquet files with bronze's columns. `file` is a plain dump (dump.py), which `sidecar state dump` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.delta import delta_files
from sidecar.audit.lake.lake import Lake, is_lake
from sidecar.audit.lake.storage import SCHEMES, Folder, file_system, folder_at, is_remote
from sidecar.audit.source.bronze import bronze_batch, conform
from sidecar.audit.source.dump import TIME_TYPES, DumpRecord, dump_files, open_dump, read_dump, records_of
from sidecar.audit.source.kafka import AT_ONCE, KafkaOptions, KafkaSource, Ranges
from sidecar.audit.tables.layers import BRONZE


class Split(Protocol):
    """A part of a source that one task reads. Can be pickled."""

    def batches(self) -> Iterator[Any]: ...


class Source(Protocol):
    @property
    def shown(self) -> str: ...

    def identity(self) -> str:
        """Returns an id that stays the same as long as offsets mean the same records; empty if the source has none."""
        ...

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns state partition -> its first offset, and the one behind its last."""
        ...

    def splits(self, ranges: Ranges) -> list[Any]: ...


def open_source(uri: str, options: Mapping[str, str] | None = None) -> Source:
    """Returns the source at a URI. Raises AuditError, which lists the valid forms."""
    scheme, separator, rest = uri.partition("://")
    if separator:
        if scheme == "kafka":
            return KafkaSource(KafkaOptions.of(rest, options or {}))
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
@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file. `values`: those of the columns that are in the names of its folders."""

    path: str
    values: Mapping[str, str | None]


def opened(path: str) -> Any:
    store, name = file_system(path)
    return pq.ParquetFile(name, filesystem=store)


@dataclass(frozen=True)
class CopySplit:
    file: ParquetFile
    start: Mapping[int, int]
    end: Mapping[int, int]
    row_groups: tuple[int, ...]

    def batches(self) -> Iterator[Any]:
        with opened(self.file.path) as f:
            for raw in f.iter_batches(AT_ONCE, row_groups=list(self.row_groups)):
                batch = _within(conform(with_folders(raw, self.file.values)), self.start, self.end)
                if len(batch):
                    yield batch


def with_folders(batch: Any, values: Mapping[str, str | None]) -> Any:
    """Returns the batch with the columns from the names of its file's folders."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, text in values.items():
        if name in BRONZE.names:
            columns[name] = pa.repeat(pa.scalar(text).cast(BRONZE.arrow.field(name).type), len(batch))
    return pa.RecordBatch.from_pydict(columns)


def _within(batch: Any, start: Mapping[int, int], end: Mapping[int, int]) -> Any:
    """Returns the rows whose offsets are in these ranges."""
    p, offset = batch["state_partition"], batch["offset"]
    mask = pa.repeat(False, len(batch))
    for one in p.unique().to_pylist():
        if one in start:
            inside = pc.and_(pc.greater_equal(offset, start[one]), pc.less(offset, end[one]))
            mask = pc.or_(mask, pc.and_(pc.equal(p, one), inside))
    return batch.filter(mask)


@dataclass(frozen=True)
class CopySource:
    """Bronze as Parquet files: a lake, a Delta table or a folder. `days`, `groups` limit what is read (empty: all)."""

    scheme: str
    folder: Folder
    days: tuple[str, str] = ("", "9999-99-99")
    groups: frozenset[str] = frozenset()

    @property
    def shown(self) -> str:
        return str(self.folder) if is_remote(self.folder) else f"{self.scheme}://{self.folder}"

    def identity(self) -> str:
        return Lake.at(self.folder).identity() if is_lake(self.folder) else ""

    def files(self) -> list[ParquetFile]:
        """Returns the files that can have a record of these days and groups."""
        files = [f for f in self._all() if self.days[0] <= (f.values.get("day") or self.days[0]) <= self.days[1]]
        theirs = self._partitions()
        return [f for f in files if not theirs or f.values.get("state_partition", "") in (*theirs, "")]

    def _partitions(self) -> set[str]:
        """Returns the state partitions of the groups; empty if they are not known."""
        if not self.groups or not is_lake(self.folder):
            return set()
        known = [Lake.at(self.folder).partitions_of(group) for group in self.groups]
        return set().union(*known) if all(known) else set()

    def _all(self) -> list[ParquetFile]:
        if is_lake(self.folder):
            lake = Lake.at(self.folder)
            return [ParquetFile(f.path, dict(f.partition)) for f in lake.files(BRONZE)]
        if self.scheme == "delta":
            return [ParquetFile(f.path, dict(f.partition)) for f in delta_files(self.folder)]
        folder = Path(self.folder)
        paths = sorted(folder.rglob("*.parquet")) if folder.is_dir() else [folder]
        return [ParquetFile(str(p), _in_names(p.relative_to(folder))) for p in paths if not _hidden(p)]

    def bounds(self) -> dict[int, tuple[int, int]]:
        ranges: dict[int, tuple[int, int]] = {}
        for file in self.files():
            names = [n for n in ("state_partition", "offset") if n not in file.values]
            named = file.values.get("state_partition")
            with opened(file.path) as f:
                row_groups = [_offsets(f.metadata, g) for g in range(f.metadata.num_row_groups)]
                if named is not None and None not in row_groups:
                    for low, high in filter(None, row_groups):
                        _widen(ranges, int(named), low, high)
                    continue
                for raw in f.iter_batches(1 << 18, columns=names):
                    _widen_by(ranges, with_folders(raw, file.values))
        return ranges

    def splits(self, ranges: Ranges) -> list[CopySplit]:
        start, end = {p: a for p, (a, _) in ranges.items()}, {p: b for p, (_, b) in ranges.items()}
        splits = []
        for file in self.files():
            named = file.values.get("state_partition")
            if named is not None and int(named) not in ranges:
                continue
            with opened(file.path) as f:
                groups = tuple(range(f.metadata.num_row_groups))
                if named is not None:
                    wanted = range(*ranges[int(named)])
                    groups = tuple(g for g in groups if _meets(_offsets(f.metadata, g), wanted))
            if groups:
                splits.append(CopySplit(file, start, end, groups))
        return splits


def _offsets(about: Any, group: int) -> tuple[int, int] | None:
    """Returns a row group's first offset, and the one behind its last; None if the file has no statistics of them."""
    columns = about.row_group(group)
    for i in range(columns.num_columns):
        column = columns.column(i)
        if column.path_in_schema == "offset":
            statistics = column.statistics
            return (statistics.min, statistics.max + 1) if statistics is not None and statistics.has_min_max else None
    return None


def _meets(offsets: tuple[int, int] | None, wanted: range) -> bool:
    return offsets is None or (offsets[0] < wanted.stop and wanted.start < offsets[1])


def _in_names(path: Path) -> dict[str, str | None]:
    return {k: v for k, eq, v in (part.partition("=") for part in path.parts[:-1]) if eq}


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts[-4:])


def _widen(ranges: dict[int, tuple[int, int]], partition: int, low: int, high: int) -> None:
    before = ranges.get(partition, (low, high))
    ranges[partition] = (min(low, before[0]), max(high, before[1]))


def _widen_by(ranges: dict[int, tuple[int, int]], batch: Any) -> None:
    table = pa.table({n: batch[n] for n in ("state_partition", "offset")})
    made = table.group_by("state_partition").aggregate([("offset", "min"), ("offset", "max")])
    for row in made.to_pylist():
        _widen(ranges, row["state_partition"], row["offset_min"], row["offset_max"] + 1)


# ---- plain dumps ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DumpSplit:
    path: Path
    ranges: Ranges

    def batches(self) -> Iterator[Any]:
        records = records_of(self.path)
        while chunk := list(islice(records, AT_ONCE)):
            by_partition: dict[int, list[DumpRecord]] = {}
            for r in chunk:
                start, end = self.ranges.get(r.partition, (0, 0))
                if start <= r.offset < end:
                    by_partition.setdefault(r.partition, []).append(r)
            for p, rs in sorted(by_partition.items()):
                yield bronze_batch(
                    p,
                    [r.offset for r in rs],
                    [r.time_ms for r in rs],
                    [TIME_TYPES.index(r.time_type) for r in rs],
                    [r.key for r in rs],
                    [r.value for r in rs],
                    [r.headers for r in rs],
                )


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

    def splits(self, ranges: Ranges) -> list[DumpSplit]:
        return [DumpSplit(p, ranges) for p in dump_files(self.path)]


def dump(batches: Iterable[Any], path: Path) -> int:
    """Writes bronze rows as a plain dump. Returns how many."""
    written = 0
    with open_dump(path) as f:
        for batch in batches:
            names = ("state_partition", "offset", "log_ms", "log_time_type", "key", "value", "headers")
            for p, offset, ms, kind, key, value, headers in zip(*(batch[n].to_pylist() for n in names), strict=True):
                pairs = [(h["name"], h["value"]) for h in headers]
                f.write(msgspec.json.encode(DumpRecord(p, offset, ms, kind, key, value, pairs)) + b"\n")
                written += 1
    return written
