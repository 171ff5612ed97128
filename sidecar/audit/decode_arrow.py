"""Arrow arrays of what was read by column (decode_avro.py)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode_avro import LONG_BYTES, Pool, Unfit
from sidecar.audit.decode_nodes import LONG, Fields, Flags, Lists, Longs, Maybe, Runs, Spans, Texts, offsets_of, spread

TOPIC_ID_BYTES = 16


def dig(node: Any, path: Sequence[str]) -> Any:
    """The node at that path, through lists and what may be null; None if the schema has no such field."""
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


def arrow_of(pool: Pool | None, node: Any, kind: Any, alias: Mapping[str, str]) -> Any:
    """`pool`: the bytes, if what was read only points into them. `alias`: name of a struct's field in the table -> its
    name in the schema. Raises Unfit if the types differ."""
    if isinstance(node, Maybe):
        inner = arrow_of(pool, node.there, kind, alias)
        return inner.take(pc.if_else(node.valid, node.places(), pa.scalar(None, LONG)))
    if isinstance(node, Longs) and pa.types.is_integer(kind):
        try:
            return node.values.cast(kind)
        except pa.ArrowInvalid as exc:
            raise Unfit("a number is too large") from exc
    if isinstance(node, Flags) and kind == pa.bool_():
        return node.values
    if isinstance(node, Spans) and pool is not None:
        return gathered(pool, node, kind)
    if isinstance(node, Texts):
        return _texts(node, kind)
    if isinstance(node, Runs) and pool is not None and pa.types.is_list(kind):
        return _list(node.count, arrow_of(pool, _numbers(pool, node), kind.value_type, alias), kind)
    if isinstance(node, Lists) and pa.types.is_list(kind):
        return _list(node.count, arrow_of(pool, node.items, kind.value_type, alias), kind)
    if isinstance(node, Fields) and pa.types.is_struct(kind):
        made = []
        for f in kind:
            inner = node.by_name.get(alias.get(f.name, f.name)) or node.by_name.get(f.name)
            if inner is None:
                raise Unfit(f"no field {f.name}")
            made.append(arrow_of(pool, inner, f.type, alias))
        return pa.StructArray.from_arrays(made, fields=list(kind))
    raise Unfit(f"no {kind}")


def gathered(pool: Pool, spans: Spans, kind: Any) -> Any:
    """Strings or bytes as an Arrow array. Raises Unfit if a string is not UTF-8."""
    data = pool.data.take(spread(spans.start, spans.size))
    buffers = [None, offsets_of(spans.size).buffers()[1], data.buffers()[1]]
    return _texts(Texts(pa.Array.from_buffers(pa.binary(), len(spans.size), buffers), spans.text), kind)


def _texts(node: Texts, kind: Any) -> Any:
    """Strings or bytes. Raises Unfit if a string is not UTF-8."""
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


def _numbers(pool: Pool, runs: Runs) -> Longs:
    """All numbers of these arrays. A number begins behind the last one, the first of an array where the array does."""
    last = pool.last.take(spread(pool.rank.take(runs.start).cast(LONG), runs.count))
    some = pc.greater(runs.count, 0)
    firsts = pc.subtract(pc.cumulative_sum(runs.count), runs.count).filter(some)
    begin = pc.add(pa.concat_arrays([pa.array([0], LONG), last]).slice(0, len(last)), 1)
    is_first = pc.is_in(pa.arange(0, len(last), 1), firsts)
    begin = pc.replace_with_mask(begin, is_first, runs.start.filter(some))
    size = pc.add(pc.subtract(last, begin), 1)
    if (pc.max(size).as_py() or 0) > LONG_BYTES:
        raise Unfit("a number is too long")
    return Longs(pool.numbers(begin, size))


def _list(count: Any, items: Any, kind: Any) -> Any:
    return pa.ListArray.from_arrays(offsets_of(count), items, type=kind)


def shown_id(raw: bytes) -> str:
    """A topic id as Kafka's tools show it."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def mapped(values: Any, of: Callable[[bytes | None], Any] | Callable[[bytes], Any], kind: Any) -> Any:
    """`of` each value, asked once for each that is different. Null stays null."""
    known = values.dictionary_encode()
    return pa.array([of(v) for v in known.dictionary.to_pylist()], kind).take(known.indices)


def buffers_of(values: Any) -> tuple[Any, Any]:
    """Offsets and bytes of a binary array, without a copy of the bytes. A null has none."""
    if values.null_count:  # what a null points to is not defined
        values = pc.fill_null(values, b"")
    _, offsets, data = values.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset).cast(LONG)
    first = bounds[0].as_py()
    size = bounds[-1].as_py() - first
    raw = pa.array([], pa.uint8()) if not size else pa.Array.from_buffers(pa.uint8(), size, [None, data], offset=first)
    return pc.subtract(bounds, first), raw
