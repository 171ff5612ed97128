"""Schemas, their fingerprints, and Avro single-object encoding (Avro 1.11 specification)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from importlib import resources
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form

MARK = b"\xc3\x01"
KEY_SCHEMA = "group_state_key"
HEAD: Mapping[str, type] = {"owner_epoch": int, "time_ms": datetime, "revision": int, "why": str}
"""The fields that begin a value of every kind."""


class StateError(Exception):
    """A record of the state topic that cannot be read."""


class Schemas:
    """Writes with the newest schema of each kind, and reads with any that is built in or was learned from the topic."""

    def __init__(self, latest: Mapping[str, str], files: Mapping[str, str] | None = None) -> None:
        """Learns the schemas. `latest`: kind -> the schema with which it is written; `files`: schema -> its JSON text,
        by default the published ones."""
        self.texts: dict[str, str] = {}
        self._readers: dict[bytes, Any] = {}
        self._writers: dict[str, tuple[bytes, Any]] = {}
        prints = {name: self.learn(text) for name, text in (files or published()).items()}
        self._kind_of = {raw: name.rpartition("-v")[0] for name, raw in prints.items()}
        for kind, name in latest.items():
            raw = prints[name]
            self._writers[kind] = (MARK + raw, self._readers[raw])
        self.key_schema = self._readers[prints[KEY_SCHEMA]]

    @classmethod
    def empty(cls) -> Schemas:
        """Returns an instance without schemas, for readers that `learn` them from the topic."""
        self = cls.__new__(cls)
        self.texts, self._readers, self._writers, self._kind_of = {}, {}, {}, {}
        return self

    def learn(self, text: str) -> bytes:
        """Adds a schema by its JSON text, and returns its fingerprint: the 8 bytes that stand in a value. Raises
        StateError if the text is no schema."""
        try:
            raw, schema, compact = _parsed(text)
        except (
            SchemaParseException,
            UnknownType,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as exc:
            raise StateError(f"damaged schema: {exc!r}") from exc
        if raw not in self._readers:
            self._readers[raw] = schema
            self.texts[raw.hex()] = compact
        return raw

    def mark(self, kind: str) -> bytes:
        """Returns the bytes that a value of this kind begins with."""
        return self._writers[kind][0]

    def encode(self, kind: str, body: dict[str, Any]) -> bytes:
        head, schema = self._writers[kind]
        out = BytesIO()
        out.write(head)
        schemaless_writer(out, schema, body)
        return out.getvalue()

    def decode(self, value: bytes, kind: str = "") -> dict[str, Any]:
        """Decodes a value. Raises StateError if it is not a value of a known schema, or has not the fields that begin
        every value. `kind`: a value of a schema that is not a published one of this kind is read by this version's, by
        Avro's rules of resolution: then no field is missing, or has another type than the readers expect."""
        if value[:2] != MARK:
            raise StateError("the value is not in Avro single-object encoding")
        schema = self._readers.get(value[2:10])
        if schema is None:
            raise StateError(f"unknown schema {value[2:10].hex()}")
        own = self._writers[kind][1] if kind and self._kind_of.get(value[2:10]) != kind else None
        try:
            body = schemaless_reader(BytesIO(value[10:]), schema, own)
        except SchemaResolutionError as exc:
            raise StateError(f"a schema of another version does not fit {kind}: {str(exc)[:200]}") from exc
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as exc:
            raise StateError(f"damaged value: {exc!r}") from exc
        if not isinstance(body, dict):
            raise StateError("the value is not a record")
        for name, of in HEAD.items():
            if not isinstance(body.get(name), of):
                raise StateError(f"the value does not fit: {name} is {body.get(name)!r:.80}")
        return body


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[bytes, Any, str]:
    """Returns fingerprint, schema, and the text without spaces."""
    parsed = json.loads(text)
    raw = bytes.fromhex(fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"))
    schema = parse_schema(parsed)
    _takes_bytes(schema, {})
    return raw, schema, json.dumps(parsed, separators=(",", ":"))


def _takes_bytes(schema: Any, named: dict[str, bool]) -> bool:
    """Returns whether each value takes a byte at least. `named`: the same of the types that have been defined. Raises
    ValueError for an array of others: a few bytes would announce items without end, and be read for ever."""
    if isinstance(schema, list):
        for branch in schema:
            _takes_bytes(branch, named)
        return True
    if isinstance(schema, str):
        return named.get(schema, schema != "null")
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = True  # within itself it can only be in a union, an array or a map
        takes = [_takes_bytes(field["type"], named) for field in schema["fields"]]
        named[schema["name"]] = any(takes)
        return any(takes)
    if kind == "array" and not _takes_bytes(schema["items"], named):
        raise ValueError("an array of items that take no bytes")
    if kind == "map":
        _takes_bytes(schema["values"], named)
    if kind == "fixed":
        named[schema["name"]] = schema["size"] > 0
        return bool(named[schema["name"]])
    return kind in ("array", "map", "enum") or _takes_bytes(kind, named)


@lru_cache(maxsize=1)
def published() -> Mapping[str, str]:
    """Returns the schema files of this package: name without its ending -> JSON text."""
    folder = resources.files("sidecar.state.schemas")
    return {f.name[: -len(".avsc")]: f.read_text() for f in folder.iterdir() if f.name.endswith(".avsc")}
