"""Rows of bronze from records of the state topic, for readers of every source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.arrow import LONG, Unfit, fitted, mapped, offsets_of
from sidecar.audit.decode.columns import Compiled
from sidecar.audit.decode.decoder import BODY_AT, times
from sidecar.audit.source.dump import TIME_TYPES
from sidecar.audit.tables.layers import BRONZE
from sidecar.state.keys import decode_key
from sidecar.state.schema import MARK, StateError

DAY_MS = 86_400_000
Header = tuple[str, bytes | None]
KEY = {"type": "record", "name": "key", "fields": [{"name": f"part{n}", "type": "string"} for n in range(3)]}
"""Avro schema of all records' keys: kind, group id and sub id."""


def bronze_batch(
    partition: int,
    offsets: Sequence[int],
    log_ms: Sequence[int],
    time_types: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header] | None],
) -> Any:
    """Returns bronze rows of one partition, in the order of the arguments."""
    ms = pa.array(log_ms, pa.int64())
    key, value = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    log_time = times(ms)
    kind, group_id, sub_id = keys_of(key)
    columns = {
        "day": log_time.cast(pa.date32()),
        "state_partition": pa.repeat(pa.scalar(partition, pa.int32()), len(ms)),
        "offset": pa.array(offsets, pa.int64()),
        "log_ms": ms,
        "log_time": log_time,
        "log_time_type": pa.array(TIME_TYPES, pa.string()).take(pa.array(time_types, pa.int32())),
        "kind": kind,
        "group_id": group_id,
        "sub_id": sub_id,
        "key": key,
        "value": value,
        "headers": headers_of(headers),
        "fingerprint": fingerprints_of(value),
    }
    return pa.RecordBatch.from_arrays([columns[n] for n in BRONZE.names], schema=BRONZE.arrow)


def headers_of(headers: Sequence[Sequence[Header] | None]) -> Any:
    """Returns the column `headers`. Only tombstones have any, so most rows are empty lists."""
    offsets = offsets_of(pa.array([len(h) if h else 0 for h in headers], LONG))
    flat = [pair for h in headers if h for pair in h]
    kind = BRONZE.arrow.field("headers").type
    pairs = pa.StructArray.from_arrays(
        [pa.array([n for n, _ in flat], pa.string()), pa.array([v for _, v in flat], pa.binary())],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(offsets, pairs, type=kind)


def keys_of(key: Any) -> tuple[Any, Any, Any]:
    """Returns kind, group id and sub id; all three are null where the key cannot be read."""
    try:
        bad, parts = Compiled(KEY).read(key, pa.arange(0, len(key), 1), 0)
        if key.null_count or pc.any(bad).as_py():  # what a null points to is not defined
            return _keys_singly(key)
        kind, group_id, sub_id = (fitted(part, pa.string(), {}) for part in parts.flatten())
    except Unfit:
        return _keys_singly(key)
    return kind, group_id, sub_id


def _keys_singly(key: Any) -> tuple[Any, Any, Any]:
    rows: list[tuple[str | None, str | None, str | None]] = []
    for raw in key.to_pylist():
        try:
            rows.append(decode_key(raw or b""))
        except (StateError, UnicodeDecodeError):
            rows.append((None, None, None))
    kind, group_id, sub_id = (pa.array([r[i] for r in rows], pa.string()) for i in range(3))
    return kind, group_id, sub_id


def fingerprints_of(value: Any) -> Any:
    """Returns schema fingerprints in hex; null for values without the header of Avro's single-object encoding."""
    long = pc.fill_null(pc.greater_equal(pc.binary_length(value), BODY_AT), False)
    heads = pc.binary_slice(value.filter(long), 0, BODY_AT).cast(pa.binary(BODY_AT))
    named = mapped(heads, lambda head: head[len(MARK) :].hex() if head[: len(MARK)] == MARK else None, pa.string())
    return pc.replace_with_mask(pa.nulls(len(value), pa.string()), long, named)
