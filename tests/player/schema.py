"""Encodes and decodes Kafka's messages from the JSON in the kafka-clients jar.

A body is a dict by the names of the JSON, with a small first letter. What it lacks has the default. Null may stand
where no null is allowed: a broker must survive that, too.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMBERS: Mapping[str, str] = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
NO_UUID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Range:
    """Versions: "3", "0-4", "2+" or "none"."""

    low: int
    high: int

    @classmethod
    def of(cls, text: str) -> Range:
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 32767)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


class Field:
    def __init__(self, spec: Mapping[str, Any], structs: Mapping[str, list[Any]]) -> None:
        self.name: str = spec["name"][0].lower() + spec["name"][1:]
        self.type: str = spec["type"]
        self.versions = Range.of(spec["versions"])
        self.nullable = Range.of(spec.get("nullableVersions", "none"))
        self.tag: int | None = spec.get("tag")
        self.tagged = Range.of(spec.get("taggedVersions", "none"))
        self.default = spec.get("default")
        element = self.type.removeprefix("[]")
        inner = spec.get("fields") or structs.get(element) or []
        self.fields = tuple(Field(f, structs) for f in inner)

    def without_value(self) -> Any:
        """The default value."""
        if self.default == "null":
            return None
        if self.type.startswith("[]"):
            return []
        match self.type:
            case "string":
                return self.default or ""
            case "bytes" | "records":
                return b""
            case "uuid":
                return NO_UUID
            case "bool":
                return str(self.default).lower() == "true"
            case "float64":
                return float(self.default or 0)
            case kind if kind in NUMBERS:
                return int(str(self.default or 0), 0)
        return {}


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size} bytes asked for at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        form = NUMBERS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def length(self, flexible: bool, kind: str) -> int:
        """-1 for null."""
        return self.varint() - 1 if flexible else int(self.number(kind))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def length(size: int, flexible: bool, kind: str) -> bytes:
    return varint(size + 1) if flexible else struct.pack(NUMBERS[kind], size)


def _write(f: Field, kind: str, value: Any, version: int, flexible: bool) -> bytes:
    if kind.startswith("[]"):
        if value is None:
            return length(-1, flexible, "int32")
        parts = (_write(f, kind[2:], v, version, flexible) for v in value)
        return length(len(value), flexible, "int32") + b"".join(parts)
    if kind in ("string", "bytes", "records"):
        size = "int16" if kind == "string" else "int32"
        if value is None:
            return length(-1, flexible, size)
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return length(len(data), flexible, size) + data
    if kind == "uuid":
        return bytes(value.bytes)
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    present = b""
    if version in f.nullable and not f.type.startswith("[]"):
        if value is None:
            return b"\xff"
        present = b"\x01"
    return present + write_fields(f.fields, value or {}, version, flexible)


def write_fields(fields: tuple[Field, ...], body: Mapping[str, Any], version: int, flexible: bool) -> bytes:
    out = b""
    tags: list[tuple[int, bytes]] = [(t, data) for t, data in body.get("_tags", ())]
    for f in fields:
        if version not in f.versions:
            continue
        value = body.get(f.name, f.without_value())
        if version in f.tagged and f.tag is not None:
            if value != f.without_value():
                tags.append((f.tag, _write(f, f.type, value, version, flexible)))
            continue
        out += _write(f, f.type, value, version, flexible)
    if flexible:
        out += varint(len(tags)) + b"".join(varint(t) + varint(len(d)) + d for t, d in sorted(tags))
    return out


def _read(f: Field, kind: str, r: Reader, version: int, flexible: bool) -> Any:
    if kind.startswith("[]"):
        size = r.length(flexible, "int32")
        return None if size < 0 else [_read(f, kind[2:], r, version, flexible) for _ in range(size)]
    if kind in ("string", "bytes", "records"):
        size = r.length(flexible, "int16" if kind == "string" else "int32")
        if size < 0:
            return None
        data = r.take(size)
        return data.decode("utf-8", "surrogateescape") if kind == "string" else data
    if kind == "uuid":
        return uuid.UUID(bytes=r.take(16))
    if kind in NUMBERS:
        return r.number(kind)
    if version in f.nullable and not f.type.startswith("[]") and r.number("int8") < 0:
        return None
    return read_fields(f.fields, r, version, flexible)


def read_fields(fields: tuple[Field, ...], r: Reader, version: int, flexible: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    tagged = {f.tag: f for f in fields if f.tag is not None and version in f.tagged}
    for f in fields:
        if version in f.versions and not (f.tag is not None and version in f.tagged):
            out[f.name] = _read(f, f.type, r, version, flexible)
    if flexible:
        for _ in range(r.varint()):
            tag, data = r.varint(), Reader(r.take(r.varint()))
            known = tagged.get(tag)
            name, value = f"_tag{tag}", data.data
            if known is not None:
                name, value = known.name, _read(known, known.type, data, version, flexible)
            out[name] = value
    return out


class Message:
    def __init__(self, spec: Mapping[str, Any]) -> None:
        structs = {s["name"]: s["fields"] for s in spec.get("commonStructs", ())}
        self.key: int = spec.get("apiKey", -1)
        self.valid = Range.of(spec["validVersions"])
        self.flexible = Range.of(spec.get("flexibleVersions", "none"))
        self.listeners: tuple[str, ...] = tuple(spec.get("listeners", ()))
        self.fields = tuple(Field(f, structs) for f in spec.get("fields", ()))

    def encode(self, body: Mapping[str, Any], version: int) -> bytes:
        return write_fields(self.fields, body, version, version in self.flexible)

    def decode(self, data: bytes, version: int) -> dict[str, Any]:
        r = Reader(data)
        body = read_fields(self.fields, r, version, version in self.flexible)
        if r.at != len(data):
            body["_left"] = data[r.at :].hex()
        return body


class Messages:
    """All messages of one Kafka version, by name."""

    def __init__(self, libs: Path) -> None:
        self._all: dict[str, Message] = {}
        self.apis: dict[int, str] = {}
        """Key -> name without Request, of those that a broker's listener may have."""
        jar = next(libs.glob("kafka-clients-*.jar"))
        with zipfile.ZipFile(jar) as z:
            for path in z.namelist():
                if path.startswith("common/message/") and path.endswith(".json"):
                    text = re.sub(r"(?m)^\s*//.*$", "", z.read(path).decode())
                    name = Path(path).stem
                    self._all[name] = message = Message(json.loads(text))
                    if "broker" in message.listeners and name.endswith("Request"):
                        self.apis[message.key] = name.removesuffix("Request")

    def __getitem__(self, name: str) -> Message:
        return self._all[name]
