"""Kafka's message JSON as a model of messages, structs, fields and versions. The generator and tests use it."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass, field
from typing import Any

from sidecar.drill.artifacts import KAFKA
from sidecar.wire.apis import SERVED as APIS
from sidecar.wire.apis import Api, message_name

NEWEST = KAFKA
"""The Kafka whose messages are generated."""
EARLIER = "3.9.1"
"""The last one that has all versions of the APIs that Kafka 4 no longer serves, and 3.x brokers do."""

SIMULATED = "answered by the simulated brokers of the tests"
OWN = {
    "DeleteTopics": SIMULATED,
    "CreateTopics": "sent by the sidecar's own client",
    "DescribeCluster": "sent by the sidecar's own client",
    "DescribeTopicPartitions": "one byte of its answer is changed; the codec is for tests",
    "ListOffsets": "sent on a client's connection: it asks whether the client may describe these topics",
    "Metadata": "sent by the sidecar's own client",
    "Produce": "sent by the sidecar's own client",
    "SaslAuthenticate": "sent by the sidecar's own client",
    "SaslHandshake": "sent by the sidecar's own client",
}
"""Messages of APIs that pass through the proxy, but that the sidecar itself sends, or its tests answer."""
SERVED = dict(sorted((OWN | {message_name(key): spec.note for key, spec in APIS.items()}).items()))
"""Every message that is generated, and why it is."""
IN_SLICES = {message_name(key) for key in (*APIS, Api.LIST_OFFSETS, Api.METADATA)} & SERVED.keys()
"""Messages that may be large and are read and written on the event loop: in slices, too."""
HEADERS = ["RequestHeader", "ResponseHeader"]
EMBEDDED = ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"]
"""Messages of members with protocol type `consumer`, inside the messages of the classic protocol."""

INTS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
SIZES = {"b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "?": 1}
LATEST = 32767


def snake(name: str) -> str:
    s = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    s = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", s).lower()
    return s + "_" if s in {"from", "class", "global", "in", "is"} else s


@dataclass(frozen=True)
class Versions:
    low: int
    high: int

    @staticmethod
    def parse(text: str | None, default: Versions | None = None) -> Versions:
        if text is None:
            assert default is not None
            return default
        if text == "none":
            return Versions(1, 0)
        if text.endswith("+"):
            return Versions(int(text[:-1]), LATEST)
        if "-" in text:
            low, high = text.split("-")
            return Versions(int(low), int(high))
        return Versions(int(text), int(text))

    def __contains__(self, v: int) -> bool:
        return self.low <= v <= self.high


NONE = Versions(1, 0)


@dataclass
class Field:
    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    flexible: Versions
    default: Any
    fields: list[Field]

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type[2:] if self.is_array else self.type

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()


@dataclass
class Struct:
    name: str
    fields: list[Field]
    doc: str = ""


@dataclass
class Message:
    name: str
    api_key: int
    valid: Versions
    flexible: Versions
    structs: list[Struct] = field(default_factory=list)  # leaves first, the message last


def load(zf: zipfile.ZipFile, name: str) -> dict[str, Any]:
    text = zf.read(f"common/message/{name}.json").decode()
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


class Schemas:
    """The messages of two kafka-clients jars: those of the newer one, with the versions that only the earlier one has."""

    def __init__(self, newest: zipfile.ZipFile, earlier: zipfile.ZipFile) -> None:
        self._newest, self._earlier = newest, earlier

    def lowest(self, name: str) -> int:
        """Returns the lowest version of the newer jar."""
        return Versions.parse(load(self._newest, name)["validVersions"]).low

    def message(self, name: str) -> Message:
        j = load(self._newest, name)
        low = _LOWEST.get(name)
        if low is not None and low < self.lowest(name):
            j = with_removed(j, load(self._earlier, name))
        return parse_message(j)


_LOWEST = {f"{message_name(key)}{kind}": spec.low for key, spec in APIS.items() for kind in ("Request", "Response")}
"""The lowest version that is served of each message."""


def with_removed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Returns `new` with the lower versions of `old`, and with the fields that only these have, in their place."""
    low, high = Versions.parse(old["validVersions"]).low, Versions.parse(new["validVersions"]).high
    return {**new, "validVersions": f"{low}-{high}", "fields": _with_removed(new["fields"], old["fields"])}


def _with_removed(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    fields = {f["name"]: f for f in new}
    order = [*fields]
    before = -1
    for f in old:
        name = f["name"]
        if name not in fields:
            fields[name] = f
            order.insert(before + 1, name)
        elif "fields" in f:
            fields[name] = {**fields[name], "fields": _with_removed(fields[name]["fields"], f["fields"])}
        before = order.index(name)
    return [fields[name] for name in order]


def parse_field(j: dict[str, Any], parent: Versions, flexible: Versions) -> Field:
    versions = Versions.parse(j.get("versions"), parent)
    flex = Versions.parse(j.get("flexibleVersions"), flexible)
    return Field(
        name=snake(j["name"]),
        type=j["type"],
        versions=versions,
        nullable=Versions.parse(j.get("nullableVersions"), NONE),
        tagged=Versions.parse(j.get("taggedVersions"), NONE),
        tag=j.get("tag"),
        flexible=flex,
        default=j.get("default"),
        fields=[parse_field(f, versions, flexible) for f in j.get("fields", [])],
    )


def parse_message(j: dict[str, Any]) -> Message:
    flexible = Versions.parse(j.get("flexibleVersions", "none"))
    msg = Message(j["name"], j.get("apiKey", -1), Versions.parse(j["validVersions"]), flexible)
    seen: set[str] = set()

    def collect(name: str, fields: list[Field]) -> None:
        for f in fields:
            if f.is_struct and f.fields and f.element not in seen:
                collect(f.element, f.fields)
        if name not in seen:
            seen.add(name)
            msg.structs.append(Struct(name, fields))

    common = j.get("commonStructs", [])
    for c in common:
        cf = [parse_field(f, Versions.parse(c["versions"]), flexible) for f in c["fields"]]
        collect(c["name"], cf)
    collect(msg.name, [parse_field(f, msg.valid, flexible) for f in j["fields"]])
    return msg


def rename(msg: Message, old: str, new: str) -> None:
    """Rename a struct. Request and response share a module, so the generator puts the kind of message in front of a
    struct name that both use."""
    for st in msg.structs:
        st.name = new if st.name == old else st.name
        for f in st.fields:
            if f.is_struct and f.element == old:
                f.type = f.type.replace(old, new)


def py_type(f: Field) -> str:
    def base(t: str) -> str:
        if t in ("string",):
            return "str"
        if t in ("bytes", "records", "uuid"):
            return "bytes"
        if t == "bool":
            return "bool"
        if t == "float64":
            return "float"
        if t in INTS:
            return "int"
        return t

    t = f"list[{base(f.element)}]" if f.is_array else base(f.type)
    nullable = f.nullable.low <= f.nullable.high
    return t + (" | None" if nullable else "")


def py_default(f: Field) -> str:
    d = f.default
    nullable = f.nullable.low <= f.nullable.high
    if d == "null":
        return "None"
    if f.is_array:
        return "field(default_factory=list)"
    if f.is_struct:
        return "None" if nullable else f"field(default_factory=lambda: {f.element}())"
    if f.type == "string":
        return repr(d or "")
    if f.type in ("bytes", "records"):
        return "None" if (nullable and f.type == "records") else 'b""'
    if f.type == "uuid":
        return "ZERO_UUID"
    if f.type == "bool":
        return "True" if str(d).lower() == "true" else "False"
    if f.type == "float64":
        return repr(float(d or 0.0))
    return repr(int(str(d), 0)) if d not in (None, "") else "0"
