"""Two versions write one topic. What docs/reference/versions.md says of records of another version is true."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from sidecar.core.classic.records import GroupRecord as ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.consumer.records import MemberRecord
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.registry import Registry
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key, encode_key
from sidecar.state.schema import StateError, published

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
    with pytest.raises(StateError, match="does not fit: KeyError\\('client_id'\\)"):
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
