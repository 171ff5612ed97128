"""Silver's columns from a single value, and from headers. Tests compare the reading by column with the former."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.arrow import TOPIC_ID_BYTES, mapped, shown_id
from sidecar.audit.tables.columns import many
from sidecar.audit.tables.layers import HEAD, PATHS, RENAMED
from sidecar.core.classic.embedded import assigned, whole_subscription

FIELD_OF = {column: field for field, column in RENAMED.items()}
"""Field of a struct in silver -> its name in the schemas, if they differ."""


@dataclass(frozen=True)
class Embedded:
    """A column made of bytes in the client's own protocol. `read_as`: Arrow type of the bytes; `of`: their decoder."""

    read_as: Any
    of: Callable[[bytes | None], Any]


def _places(raw: bytes | None) -> Any:
    partitions = assigned(raw or b"")
    return None if partitions is None else [{"topic": t, "partitions": list(ps)} for t, ps in partitions.items()]


def _topics(raw: bytes | None) -> Any:
    subscription = None if raw is None else whole_subscription(raw)
    return None if subscription is None else list(subscription.topics)


def _rack(raw: bytes | None) -> Any:
    subscription = None if raw is None else whole_subscription(raw)
    return None if subscription is None else subscription.rack_id


EMBEDDED: Mapping[tuple[str, str], Embedded] = {
    ("classic_member", "topic_names"): Embedded(many(pa.binary()), _topics),
    ("classic_member", "rack_id"): Embedded(many(pa.binary()), _rack),
    ("classic_assignment", "assigned"): Embedded(pa.binary(), _places),
    ("classic_assignment", "assignment_bytes"): Embedded(pa.binary(), lambda raw: len(raw or b"")),
}


def headers_rows(headers: Any, schema: Any) -> Any:
    """Returns the columns of `schema` from the headers of tombstones. Of two headers with the same name the last one
    counts. Earlier versions wrote fewer: a missing number is null, a missing reason empty."""
    each, owners = headers.flatten(), pc.list_parent_indices(headers)
    names, values = each.field("name"), pc.fill_null(each.field("value"), pa.scalar(b""))
    columns = {}
    for name, column in HEAD.items():
        mine = pc.equal(names, pa.scalar(name))
        places = pc.index_in(pa.arange(0, len(headers), 1), value_set=owners.filter(mine)[::-1])
        texts = values.filter(mine)[::-1].take(places)
        columns[column] = (
            pc.fill_null(mapped(texts, lambda raw: raw.decode(errors="replace"), pa.string()), pa.scalar(""))
            if column == "why"
            else _numbers(texts)
        )
    made = [columns[f.name] if f.name in columns else pa.nulls(len(headers), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _numbers(texts: Any) -> Any:
    try:
        return texts.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:  # one of them is no number
        return mapped(texts, _number, pa.int64())


def _number(raw: bytes) -> int | None:
    try:
        n = int(raw)
    except ValueError:
        return None
    return n if -(1 << 63) <= n < 1 << 63 else None


def value_row(kind: str, schema: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of `schema` from one decoded value."""
    row: dict[str, Any] = {}
    for f in schema:
        value = _dig(body, PATHS[kind, f.name])
        embedded = EMBEDDED.get((kind, f.name))
        if embedded is not None:
            if isinstance(value, list):
                value = value[0] if value else None
            row[f.name] = None if value is None else embedded.of(value)
        elif value is None:
            row[f.name] = None if f.nullable else ""
        else:
            row[f.name] = _plain(value, f.type)
    return row


def _dig(value: Any, path: tuple[str, ...]) -> Any:
    if not path or value is None:
        return value
    if isinstance(value, list):
        return [_dig(v, path) for v in value]
    return _dig(value.get(path[0]), path[1:])


def _plain(value: Any, kind: Any) -> Any:
    """Returns the value for a column of that type. Raises ValueError, TypeError or KeyError if it does not fit."""
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_plain(v, kind.value_type) for v in value]
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {f.name: _plain(value[_name_in(value, f.name)], f.type) for f in kind}
    if kind == pa.string() and isinstance(value, bytes):
        if len(value) != TOPIC_ID_BYTES:
            raise ValueError("bytes where there should be text")
        return shown_id(value)
    if isinstance(value, bool) != (kind == pa.bool_()):
        raise TypeError(f"{value!r} is no {kind}")
    return value


def _name_in(value: Mapping[str, Any], name: str) -> str:
    alias = FIELD_OF.get(name)
    return alias if alias in value and alias is not None else name
