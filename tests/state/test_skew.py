"""Two versions write one topic. What docs/reference/versions.md says of records of another version is true."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from fastavro.schema import UnknownType

from sidecar.core.classic.records import GroupRecord as ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.consumer.records import MemberRecord
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.registry import Registry
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.state.codec import CONFIG, Stamp, StateCodec
from sidecar.state.keys import StateKey, decode_key, encode_key
from sidecar.state.rebuilt import at_once, rebuilt
from sidecar.state.schema import KEY_SCHEMA, MARK, StateError, published

pytestmark = pytest.mark.tier("test")

STAMP = Stamp(7 << 16, 1_795_000_000_000)
ADDED = {"name": "of_tomorrow", "type": "string", "default": "new"}
RECORDS: list[tuple[Record, str]] = [
    (MemberRecord("g", "m", "i", None, "c", "/h", 30_000, ("a",), None, "range", "joined"), "member-v2"),
    (
        ClassicGroup("g", State.STABLE, 3, "consumer", "range", "m", 3, 1_795_000_000_000, "assigned"),
        "classic_group-v2",
    ),
]


def newer_version(schema: str) -> StateCodec:
    """The codec of a version that writes this kind of record with one field more."""
    kind, number = re.fullmatch(r"(\w+)-v(\d+)", schema).groups()  # type: ignore[union-attr]
    name = f"{kind}-v{int(number) + 1}"
    text = json.loads(published()[schema])
    text["fields"].append(ADDED)
    registry: Registry = copy.copy(REGISTRY)
    row = registry.records[kind]
    registry.records = {**registry.records, kind: replace(row, record=replace(row.record, schema=name))}
    return StateCodec(registry, {**published(), name: json.dumps(text)})


@pytest.mark.parametrize(("record", "schema"), RECORDS)
def test_a_newer_schema_with_one_field_more_is_read_once_the_topic_has_told_it(record: Record, schema: str) -> None:
    newer, older = newer_version(schema), StateCodec()
    e = newer.encode(record, STAMP, 5)
    with pytest.raises(StateError, match="unknown schema"):
        older.decode(decode_key(e.key), e.value)
    for told in newer.schema_records():
        older.schemas.learn((told.value or b"").decode())
    assert older.decode(decode_key(e.key), e.value) == (record, 5)
    assert older.schemas.decode(e.value or b"")["of_tomorrow"] == "new", "the field is there, and nobody reads it"
    written = older.encode(record, STAMP, 6)
    assert written.value == StateCodec().encode(record, STAMP, 6).value, "what it has learned it does not write"
    assert newer.decode(decode_key(written.key), written.value) == (record, 6), "and the newer one reads the older's"


def test_a_newer_kind_of_record_cannot_be_read() -> None:
    codec = StateCodec()
    value = codec.encode(RECORDS[0][0], STAMP, 1).value
    with pytest.raises(StateError, match="a newer version may have written it"):
        codec.decode(decode_key(encode_key("of_tomorrow", "g", "m")), value)


def test_a_schema_without_a_field_that_is_read_cannot_be_read() -> None:
    """Such a schema must not be published (below); an older version that meets one says so."""
    text = json.loads(published()["member-v2"])
    text["fields"] = [f for f in text["fields"] if f["name"] != "client_id"]
    writer = StateCodec(files={**published(), "member-v2": json.dumps(text)})
    e = writer.encode(RECORDS[0][0], STAMP, 1)
    reader = StateCodec()
    for told in writer.schema_records():
        reader.schemas.learn((told.value or b"").decode())
    with pytest.raises(StateError, match=r"does not fit member: .*client_id"):
        reader.decode(decode_key(e.key), e.value)


def versions() -> dict[str, list[str]]:
    """Kind of record -> its published schemas, oldest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in published():
        if match := re.fullmatch(r"(\w+)-v(\d+)", name):
            found.setdefault(match[1], []).append((int(match[2]), name))
    return {kind: [name for _, name in sorted(names)] for kind, names in found.items()}


@pytest.mark.parametrize(
    ("before", "after"), [pair for names in versions().values() for pair in pairwise(names)], ids=str
)
def test_a_published_version_only_adds_fields_and_with_defaults(before: str, after: str) -> None:
    """The version before can then read the record, and a rollback loses no group."""
    old, new = ({f["name"]: f for f in json.loads(published()[name])["fields"]} for name in (before, after))
    for name, field in old.items():
        assert new.get(name, {}).get("type") == field["type"], f"{after} changes or lacks {name}"
    added = [f for name, f in new.items() if name not in old]
    assert added and all("default" in f for f in added)


OTHER_TYPES: tuple[Any, ...] = (
    None,
    "null",
    "boolean",
    "long",
    "double",
    "bytes",
    "string",
    {"type": "array", "items": "string"},
    {"type": "map", "values": "long"},
    {"type": "record", "name": "Odd", "fields": [{"name": "odd", "type": "long"}]},
)
"""None: the field is left out."""


def changed(schema: Any, other: Any) -> Iterator[Any]:
    """Yields the schema with each of its fields, also of inner records, of another type."""
    if isinstance(schema, list):
        for i, inner in enumerate(schema):
            yield from ([*schema[:i], one, *schema[i + 1 :]] for one in changed(inner, other))
    elif isinstance(schema, dict) and schema["type"] == "record":
        fields = schema["fields"]
        for i, field in enumerate(fields):
            new = [] if other is None else [{"name": field["name"], "type": other}]
            yield {**schema, "fields": [*fields[:i], *new, *fields[i + 1 :]]}
            for one in changed(field["type"], other):
                yield {**schema, "fields": [*fields[:i], {**field, "type": one}, *fields[i + 1 :]]}
    elif isinstance(schema, dict):
        inside = "items" if schema["type"] == "array" else "type"
        yield from ({**schema, inside: one} for one in changed(schema[inside], other))


def some(schema: Any, named: dict[str, Any]) -> Any:
    """Returns a value of the schema that leaves nothing out. `named`: the records that it has defined so far."""
    if isinstance(schema, list):
        return some(schema[-1], named)
    if isinstance(schema, str):
        plain = {"null": None, "boolean": True, "double": 1.0, "bytes": b"x" * 16, "string": "abc"}
        return some(named[schema], named) if schema in named else plain.get(schema, 1)
    named |= {schema["name"]: schema} if "name" in schema else {}
    if schema["type"] == "record":
        return {f["name"]: some(f["type"], named) for f in schema["fields"]}
    if schema["type"] == "array":
        return [some(schema["items"], named)]
    if schema["type"] == "fixed":
        return b"x" * schema["size"]
    return {"k": some(schema["values"], named)} if schema["type"] == "map" else some(schema["type"], named)


@pytest.mark.parametrize("kind", sorted(REGISTRY.records))
def test_a_value_of_any_other_schema_is_read_or_is_unreadable(kind: str) -> None:
    """Symptom: the page, and the list of all groups, failed with an AttributeError, for one record whose schema had
    another type for its time. A field of another type broke the replay of its partition."""
    row = REGISTRY.records[kind]
    key = StateKey(kind, "g", "m")
    unreadable = count = 0
    for other in OTHER_TYPES:
        for schema in changed(json.loads(published()[row.record.schema]), other):
            out = BytesIO()
            try:
                schemaless_writer(out, parse_schema(copy.deepcopy(schema)), some(schema, {}))
            except (TypeError, UnknownType):
                continue  # an inner record that is named again, after its definition is gone
            codec = StateCodec()
            value = MARK + codec.schemas.learn(json.dumps(schema)) + out.getvalue()
            with suppress(StateError, InvariantError):
                REGISTRY.replayed(codec.decode(key, value)[0], None)
            unreadable += bool(at_once(rebuilt(codec, [(key, value)])).problems)
            count += 1
    assert count > 40 and unreadable > count // 2


@pytest.mark.parametrize("name", sorted(published().keys() - {KEY_SCHEMA}))
def test_a_value_of_another_kind_s_schema_is_unreadable(name: str) -> None:
    """Symptom: a setting with the value of a claim ended every sidecar with a KeyError, at each start."""
    codec, text = StateCodec(), published()[name]
    out = BytesIO()
    schemaless_writer(out, parse_schema(json.loads(text)), some(json.loads(text), {}))
    value = MARK + codec.schemas.learn(text) + out.getvalue()
    for kind in (*REGISTRY.records, CONFIG):
        if kind == name.rpartition("-v")[0]:
            codec.schemas.decode(value, kind)
        else:
            with pytest.raises(StateError):
                codec.schemas.decode(value, kind)


NOTHING: dict[str, Any] = {
    "null": "null",
    "null with properties": {"type": "null"},
    "no field": {"type": "record", "name": "Empty", "fields": []},
    "empty fields": {
        "type": "record",
        "name": "Outer",
        "fields": [
            {"name": "a", "type": {"type": "record", "name": "Empty", "fields": []}},
            {"name": "b", "type": "Empty"},
        ],
    },
    "fixed": {"type": "fixed", "name": "None", "size": 0},
}


@pytest.mark.parametrize("items", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("inside", [False, True])
def test_a_schema_whose_values_announce_items_without_end_is_refused(items: Any, inside: bool) -> None:
    """Symptom: a value of 30 bytes was read for ever, and took all memory: Avro's items may take no bytes."""
    text = json.loads(published()["member-v2"])
    many: Any = {"type": "array", "items": items}
    if inside:
        many = ["null", {"type": "map", "values": {"type": "array", "items": many}}]
    text["fields"].append({"name": "many", "type": many})
    with pytest.raises(StateError, match="an array of items that take no bytes"):
        StateCodec().schemas.learn(json.dumps(text))
    text["fields"][-1]["type"] = {"type": "array", "items": [items, "string"]}
    StateCodec().schemas.learn(json.dumps(text))
