"""Arrow arrays from the columns that the kernel has read (columns.py)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.nodes import LONG, Fields, Flags, Lists, Longs, Maybe, Texts, Unfit, offsets_of

TOPIC_ID_BYTES = 16


def dig(node: Any, path: Sequence[str]) -> Any:
    """Returns the node at that path, through lists and nullable values; None if the schema has no such field."""
    if not path:
        return node
    if isinstance(node, Fields):
        inner = node.by_name.get(path[0])
        return None if inner is None else dig(inner, path[1:])
    if isinstance(node, Lists):
        inner = dig(node.items, path)
        return None if inner is None else Lists(node.count, inner)
    if isinstance(node, Maybe):
        inner = dig(node.there, path)
        return None if inner is None else Maybe(node.valid, inner)
    raise Unfit(f"{path[0]} is not in a record")


def arrow_of(node: Any, kind: Any, alias: Mapping[str, str]) -> Any:
    """Returns the node's values as an Arrow array of type `kind`. `alias`: name of a struct's field in the table ->
    its name in the schema. Raises Unfit if the types differ."""
    if isinstance(node, Maybe):
        inner = arrow_of(node.there, kind, alias)
        return inner.take(pc.if_else(node.valid, node.places(), pa.scalar(None, LONG)))
    if isinstance(node, Longs) and pa.types.is_integer(kind):
        try:
            return node.values.cast(kind)
        except pa.ArrowInvalid as exc:
            raise Unfit("a number is too large") from exc
    if isinstance(node, Flags) and kind == pa.bool_():
        return node.values
    if isinstance(node, Texts):
        return _texts(node, kind)
    if isinstance(node, Lists) and pa.types.is_list(kind):
        items = arrow_of(node.items, kind.value_type, alias)
        return pa.ListArray.from_arrays(offsets_of(node.count), items, type=kind)
    if isinstance(node, Fields) and pa.types.is_struct(kind):
        made = []
        for f in kind:
            inner = node.by_name.get(alias.get(f.name, f.name)) or node.by_name.get(f.name)
            if inner is None:
                raise Unfit(f"no field {f.name}")
            made.append(arrow_of(inner, f.type, alias))
        return pa.StructArray.from_arrays(made, fields=list(kind))
    raise Unfit(f"no {kind}")


def _texts(node: Texts, kind: Any) -> Any:
    """Returns strings or bytes; bytes as a string are topic ids. Raises Unfit if a string is not UTF-8."""
    values = node.values
    if kind == pa.string() and not node.text:
        if not pc.all(pc.equal(pc.binary_length(values), pa.scalar(TOPIC_ID_BYTES, pa.int32())), min_count=0).as_py():
            raise Unfit("bytes where there should be text")
        return mapped(values, shown_id, kind)
    if kind == pa.binary() and not node.text:
        return values
    if kind != pa.string():
        raise Unfit(f"no {kind}")
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as exc:
        raise Unfit("not UTF-8") from exc


def shown_id(raw: bytes) -> str:
    """Returns a topic id as Kafka's tools show it."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def mapped(values: Any, of: Callable[[bytes | None], Any] | Callable[[bytes], Any], kind: Any) -> Any:
    """Applies `of` to each value, with one call per distinct value. Null stays null."""
    known = values.dictionary_encode()
    return pa.array([of(v) for v in known.dictionary.to_pylist()], kind).take(known.indices)
