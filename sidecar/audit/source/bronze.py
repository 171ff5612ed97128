"""Rows of bronze from records of the state topic, for readers of every source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.decode.arrow import Unfit, fitted, mapped
from sidecar.audit.decode.columns import Compiled
from sidecar.audit.decode.decoder import BODY_AT, times
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.batch import Ranges
from sidecar.audit.lake.files import FileInfo
from sidecar.audit.lake.storage import file_system
from sidecar.audit.source.dump import DumpRecord
from sidecar.audit.tables.columns import BYTES, DATE, INT, LONG, TEXT
from sidecar.audit.tables.layers import BRONZE
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import MARK, StateError

DAY_MS = 86_400_000
READ_AT_ONCE = 65_536
PLACE = pa.schema([BRONZE.arrow.field("state_partition"), BRONZE.arrow.field("offset")])
HEADERS = BRONZE.arrow.field("headers").type
KEY = {"type": "record", "name": "key", "fields": [{"name": f"part{n}", "type": "string"} for n in range(3)]}
"""Avro schema of all records' keys: kind, group id and sub id."""


def bronze_batch(records: Sequence[DumpRecord]) -> Any:
    """Returns bronze rows of the records, in their order."""
    log_ms = pa.array([r.time_ms for r in records], LONG)
    log_time = times(log_ms)
    key, value = pa.array([r.key for r in records], BYTES), pa.array([r.value for r in records], BYTES)
    kind, group_id, sub_id = keys_of(key)
    columns = {
        "day": log_time.cast(DATE),
        "state_partition": pa.array([r.partition for r in records], INT),
        "offset": pa.array([r.offset for r in records], LONG),
        "log_ms": log_ms,
        "log_time": log_time,
        "log_time_type": pa.array([r.time_type for r in records], TEXT),
        "kind": kind,
        "group_id": group_id,
        "sub_id": sub_id,
        "key": key,
        "value": value,
        "headers": pa.array([r.headers for r in records], HEADERS),
        "fingerprint": fingerprints_of(value),
    }
    return pa.RecordBatch.from_arrays([columns[n] for n in BRONZE.names], schema=BRONZE.arrow)


def keys_of(key: Any) -> Any:
    """Returns kind, group id and sub id; all three are null where the key cannot be read."""
    try:
        bad, parts = Compiled(KEY).read(key, pa.arange(0, len(key), 1), 0)
        if not key.null_count and not pc.any(bad).as_py():  # what a null points to is not defined
            return [fitted(part, TEXT, {}) for part in parts.flatten()]
    except Unfit:
        pass
    return mapped(key, _parts_of, pa.struct(dict.fromkeys(StateKey._fields, TEXT))).flatten()


def _parts_of(key: bytes) -> StateKey | None:
    try:
        return decode_key(key)
    except (StateError, UnicodeDecodeError):
        return None


def fingerprints_of(value: Any) -> Any:
    """Returns schema fingerprints in hex; null for values without the header of Avro's single-object encoding."""
    long = pc.fill_null(pc.greater_equal(pc.binary_length(value), BODY_AT), False)
    heads = pc.binary_slice(value.filter(long), 0, BODY_AT).cast(pa.binary(BODY_AT))
    named = mapped(heads, lambda head: head[len(MARK) :].hex() if head[: len(MARK)] == MARK else None, TEXT)
    return pc.replace_with_mask(pa.nulls(len(value), TEXT), long, named)


# ---- files ----------------------------------------------------------------------------------------------------------
@contextmanager
def _opened(file: FileInfo) -> Iterator[tuple[pq.ParquetFile, dict[str, Any]]]:
    """Opens a Parquet file of bronze. Yields also the columns that are in the names of its folders. Raises AuditError
    if it lacks one."""
    store, name = file_system(file.path)
    known = ((BRONZE.arrow.field(n), text) for n, text in file.partition if n in BRONZE.names)
    folders = {field.name: pa.scalar(text).cast(field.type) for field, text in known}
    with pq.ParquetFile(name, filesystem=store) as parquet:
        if missing := [n for n in BRONZE.names if n not in {*parquet.schema_arrow.names, *folders}]:
            raise AuditError(f"{file.path} has no column {missing[0]}: it is no copy of the state topic")
        yield parquet, folders


def rows_of(file: FileInfo, groups: Sequence[int] | None = None, schema: Any = BRONZE.arrow) -> Iterator[Any]:
    """Yields the columns of this schema, of all row groups or of these. A scan as a dataset would take more memory and
    processor time."""
    with _opened(file) as (parquet, folders):
        for batch in parquet.iter_batches(READ_AT_ONCE, groups, [n for n in schema.names if n not in folders]):
            columns = [pa.repeat(folders[n], len(batch)) if n in folders else batch[n] for n in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema.names).cast(schema)


def bounds_of(file: FileInfo) -> list[Ranges]:
    """Returns the bounds of each row group, by its statistics if it has some."""
    with _opened(file) as (parquet, folders):
        groups = [parquet.metadata.row_group(g) for g in range(parquet.num_row_groups)]
        at = {n: parquet.schema.names.index(n) for n in PLACE.names if n not in folders}
    bounds = []
    for g, group in enumerate(groups):
        ends = {n: (value.as_py(), value.as_py()) for n, value in folders.items()}
        for n, about in ((n, group.column(i).statistics) for n, i in at.items()):
            if about is not None and about.has_min_max:
                ends[n] = about.min, about.max
        p, offset = (ends.get(n) for n in PLACE.names)
        if p and offset and p[0] == p[1]:
            bounds.append({p[0]: (offset[0], offset[1] + 1)})
            continue
        rows = pa.Table.from_batches(rows_of(file, [g], PLACE), PLACE).group_by("state_partition")
        made = rows.aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        bounds.append({row["state_partition"]: (row["offset_min"], row["offset_max"] + 1) for row in made})
    return bounds
