"""Rows of bronze from records of the state topic, for readers of every source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.arrow import Unfit, fitted, mapped
from sidecar.audit.decode.columns import Compiled
from sidecar.audit.decode.decoder import BODY_AT, times
from sidecar.audit.source.dump import DumpRecord
from sidecar.audit.tables.columns import BYTES, DATE, INT, LONG, TEXT
from sidecar.audit.tables.layers import BRONZE
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import MARK, StateError

DAY_MS = 86_400_000
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
