"""Arrow arrays of silver's types from those that have the types of a schema (columns.py), or of Python values."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LONG = pa.int64()
TOPIC_ID_BYTES = 16


class Unfit(Exception):
    """A value or schema cannot be read by column. It may still be readable value by value."""


def offsets_of(count: Any) -> Any:
    return pa.concat_arrays([pa.array([0], LONG), pc.cumulative_sum(count)]).cast(pa.int32())


def dig(values: Any, path: Sequence[str]) -> Any:
    """Returns the values at that path, through lists and nullable values; None if the schema has no such field."""
    if not path or pa.types.is_null(values.type):
        return values
    if pa.types.is_list(values.type):
        inner = dig(values.values, path)
        return None if inner is None else _list(values, inner, pa.list_(inner.type))
    if pa.types.is_struct(values.type):
        at = values.type.get_field_index(path[0])
        return None if at < 0 else dig(values.flatten()[at], path[1:])
    raise Unfit(f"{path[0]} is not in a record")


def fitted(values: Any, kind: Any, alias: Mapping[str, str]) -> Any:
    """Returns the values as an array of type `kind`. `alias`: name of a struct's field in the table -> its name in the
    schema. Raises Unfit if the types differ, or a string is not UTF-8."""
    known = values.type
    if pa.types.is_null(known):
        return pa.nulls(len(values), kind)
    if known == pa.binary() and kind == pa.string():
        return _topic_ids(values)
    try:
        if known == kind == pa.string():
            return values.cast(pa.binary()).cast(kind)  # looks whether it is UTF-8
        if (known == LONG and pa.types.is_integer(kind)) or (known == kind and kind in (pa.binary(), pa.bool_())):
            return values.cast(kind)
    except pa.ArrowInvalid as exc:
        raise Unfit(str(exc)) from exc
    if pa.types.is_list(known) and pa.types.is_list(kind):
        return _list(values, fitted(values.values, kind.value_type, alias), kind)
    if pa.types.is_struct(known) and pa.types.is_struct(kind):
        parts = dict(zip(known.names, values.flatten(), strict=True))
        names = [alias[f.name] if alias.get(f.name) in parts else f.name for f in kind]
        if not set(names) <= parts.keys():
            raise Unfit(f"no fields {names}")
        made = [fitted(parts[name], f.type, alias) for name, f in zip(names, kind, strict=True)]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=_nulls(values))
    raise Unfit(f"no {kind}")


def _list(values: Any, items: Any, kind: Any) -> Any:
    """Returns lists as long as those of `values`, of other items."""
    return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=_nulls(values))


def _nulls(values: Any) -> Any:
    return values.is_null() if values.null_count else None


def _topic_ids(values: Any) -> Any:
    if not pc.all(pc.equal(pc.binary_length(values), pa.scalar(TOPIC_ID_BYTES, pa.int32())), min_count=0).as_py():
        raise Unfit("bytes where there should be text")
    return mapped(values, shown_id, pa.string())


@lru_cache(maxsize=4096)
def shown_id(raw: bytes) -> str:
    """Returns a topic id as Kafka's tools show it."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def mapped(values: Any, of: Callable[[bytes | None], Any] | Callable[[bytes], Any], kind: Any) -> Any:
    """Applies `of` to each value, with one call per distinct value. Null stays null."""
    known = values.dictionary_encode()
    return pa.array([of(v) for v in known.dictionary.to_pylist()], kind).take(known.indices)
