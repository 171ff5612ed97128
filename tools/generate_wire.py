"""Generate sidecar/wire/generated/ from Kafka's own message JSON.

    python tools/generate_wire.py --jar kafka-clients-4.3.1.jar [--check]

Input: `common/message/*.json` inside the kafka-clients jar. Output: one Python module for each API in
`SERVED`, straight-line encode and decode functions for every valid version, versions of one layout sharing
one function. `--check` writes nothing and fails if the files in the tree differ.

What the generated code keeps to:
* a length is checked against the bytes left before anything is made for it;
* unknown tagged fields are skipped; known ones are bounded by their declared size;
* reading past the end raises `WireError`, never anything else (see `sidecar/wire/primitives.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# message name -> why it is here
SERVED = {
    "ApiVersions": "rewritten",
    "ConsumerGroupDescribe": "answered",
    "ConsumerGroupHeartbeat": "answered",
    "CreateTopics": "the sidecar's own client",
    "DeleteGroups": "answered",
    "DescribeConfigs": "the sidecar's own client",
    "DescribeGroups": "answered",
    "FindCoordinator": "rewritten",
    "Heartbeat": "answered; the sidecar's own client",
    "InitProducerId": "the sidecar's own client",
    "JoinGroup": "answered; the sidecar's own client",
    "LeaveGroup": "answered; the sidecar's own client",
    "ListGroups": "rewritten",
    "Metadata": "the sidecar's own client",
    "OffsetCommit": "validated and forwarded",
    "OffsetDelete": "answered",
    "OffsetFetch": "validated and forwarded",
    "Produce": "the sidecar's own client",
    "SyncGroup": "answered; the sidecar's own client",
    "TxnOffsetCommit": "validated and forwarded",
}
HEADERS = ["RequestHeader", "ResponseHeader"]

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
    """Request and response share a module: a struct name that both use gets its message's kind in front."""
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


class Emitter:
    """Writes one module."""

    def __init__(self, messages: list[Message], kafka: str) -> None:
        self.messages = messages
        self.kafka = kafka
        self.out: list[str] = []
        self.packs: set[str] = set()

    # ---- layout: versions that read and write alike share functions -------------------------------------
    def layout(self, msg: Message, st: Struct, v: int) -> tuple[Any, ...]:
        rows: list[Any] = [v in msg.flexible]
        by_name = {s.name: s for s in msg.structs}
        for f in st.fields:
            if v not in f.versions:
                continue
            sub = self.layout(msg, by_name[f.element], v) if f.is_struct else None
            rows.append((f.name, v in f.nullable, v in f.tagged, v in f.flexible, sub))
        return tuple(rows)

    def run(self) -> str:
        body: list[str] = []
        taken: set[str] = set()
        for msg in self.messages:
            names = {st.name for st in msg.structs}
            for clash in sorted(names & taken):
                rename(msg, clash, ("Response" if msg.name.endswith("Response") else "Request") + clash)
            taken |= names
        for msg in self.messages:
            for st in msg.structs:
                body += self.emit_class(msg, st)
            for st in msg.structs:
                body += self.emit_functions(msg, st)
            body += self.emit_tables(msg)
        head = [
            f'"""{", ".join(m.name for m in self.messages)}: generated by tools/generate_wire.py '
            f'from Kafka {self.kafka}. Do not edit."""',
            "# ruff: noqa",
            "from __future__ import annotations",
            "",
            "from collections.abc import Callable",
            "from dataclasses import dataclass, field",
            "from struct import Struct, error as _struct_error",
            "",
            "from sidecar.wire.primitives import (",
            "    ZERO_UUID,",
            "    WireError,",
            "    put_uvarint,",
            "    skip_tags,",
            "    uvarint,",
            ")",
            "",
        ]
        for p in sorted(self.packs):
            tag = p.replace("?", "o")
            head.append(f"_S_{tag} = Struct({'>' + p!r})")
            head.append(f"_u_{tag} = _S_{tag}.unpack_from")
            head.append(f"_p_{tag} = _S_{tag}.pack")
        return "\n".join(head + body) + "\n"

    def unpack(self, fmt: str) -> str:
        self.packs.add(fmt)
        return "_u_" + fmt.replace("?", "o")

    def pack(self, fmt: str) -> str:
        self.packs.add(fmt)
        return "_p_" + fmt.replace("?", "o")

    def emit_class(self, msg: Message, st: Struct) -> list[str]:
        lines = ["", "", "@dataclass(slots=True)", f"class {st.name}:"]
        if st.name == msg.name:
            lines.append(
                f'    """Kafka {self.kafka} {msg.name}, api key {msg.api_key}, versions {msg.valid.low}-{msg.valid.high}."""'
            )
        for f in st.fields:
            lines.append(f"    {f.name}: {py_type(f)} = {py_default(f)}")
        if not st.fields:
            lines.append("    pass")
        if st.name == msg.name:
            lines += [
                "",
                "    @staticmethod",
                f"    def decode(version: int, buf: bytes, pos: int = 0) -> {st.name}:",
                f"        return decode_{snake(st.name)}(version, buf, pos)[0]",
                "",
                "    def encode(self, version: int) -> bytes:",
                "        out = bytearray()",
                f"        encode_{snake(st.name)}(version, self, out)",
                "        return bytes(out)",
            ]
        return lines

    def emit_tables(self, msg: Message) -> list[str]:
        n = snake(msg.name)
        lo, hi = msg.valid.low, msg.valid.high
        flex = msg.flexible.low if msg.flexible.low <= msg.flexible.high else LATEST
        top = msg.structs[-1]
        index = self.index(msg, top)
        return [
            "",
            "",
            f"{n.upper()}_VERSIONS = ({lo}, {hi})",
            f"{n.upper()}_FLEXIBLE_FROM = {flex}",
            f"_DECODE_{n.upper()}: dict[int, Callable[[bytes, int, int], tuple[{msg.name}, int]]] = {{",
            *[f"    {v}: _d{index[v]}_{top.name}," for v in range(lo, hi + 1)],
            "}",
            f"_ENCODE_{n.upper()}: dict[int, Callable[[{msg.name}, bytearray], None]] = {{",
            *[f"    {v}: _e{index[v]}_{top.name}," for v in range(lo, hi + 1)],
            "}",
            "",
            "",
            f"def decode_{n}(version: int, buf: bytes, pos: int = 0) -> tuple[{msg.name}, int]:",
            f"    fn = _DECODE_{n.upper()}.get(version)",
            "    if fn is None:",
            f'        raise WireError(f"{msg.name}: version {{version}} is not one of {lo}-{hi}")',
            "    try:",
            "        return fn(buf, pos, len(buf))",
            "    except (_struct_error, IndexError, UnicodeDecodeError) as exc:",
            f'        raise WireError(f"{msg.name} v{{version}}: {{exc}}") from None',
            "",
            "",
            f"def encode_{n}(version: int, msg: {msg.name}, out: bytearray) -> None:",
            f"    fn = _ENCODE_{n.upper()}.get(version)",
            "    if fn is None:",
            f'        raise WireError(f"{msg.name}: version {{version}} is not one of {lo}-{hi}")',
            "    fn(msg, out)",
        ]

    def index(self, msg: Message, st: Struct) -> dict[int, int]:
        """version -> number of its layout."""
        layouts: dict[tuple[Any, ...], int] = {}
        return {
            v: layouts.setdefault(self.layout(msg, st, v), len(layouts))
            for v in range(msg.valid.low, msg.valid.high + 1)
        }

    def emit_functions(self, msg: Message, st: Struct) -> list[str]:
        done: set[int] = set()
        lines: list[str] = []
        for v, i in self.index(msg, st).items():
            if i in done:
                continue
            done.add(i)
            lines += self.emit_decode(msg, st, v, i)
            lines += self.emit_encode(msg, st, v, i)
        return lines

    def sub(self, msg: Message, name: str, v: int) -> int:
        st = next(s for s in msg.structs if s.name == name)
        return self.index(msg, st)[v]

    def min_size(self, msg: Message, name: str, v: int) -> int:
        """Fewest bytes an element can take: bounds how many a given number of bytes can hold."""
        if name in INTS:
            return SIZES[INTS[name]]
        if name == "uuid":
            return 16
        if not name[0].isupper():
            return 1 if v in msg.flexible else (4 if name in ("bytes", "records") else 2)
        st = next(s for s in msg.structs if s.name == name)
        total = 1 if v in msg.flexible else 0
        for f in st.fields:
            if v not in f.versions or v in f.tagged:
                continue
            if f.is_array:
                total += 1 if v in f.flexible else 4
            elif f.is_struct:
                total += 1 if v in f.nullable else self.min_size(msg, f.element, v)
            else:
                total += (
                    self.min_size(msg, f.type, v)
                    if v in f.flexible or f.type in INTS or f.type == "uuid"
                    else (4 if f.type in ("bytes", "records") else 2)
                )
        return max(total, 1)

    # ---- decode -----------------------------------------------------------------------------------------
    def emit_decode(self, msg: Message, st: Struct, v: int, i: int) -> list[str]:
        flex = v in msg.flexible
        lines = ["", "", f"def _d{i}_{st.name}(b: bytes, p: int, e: int) -> tuple[{st.name}, int]:"]
        live = [f for f in st.fields if v in f.versions]
        plain = [f for f in live if v not in f.tagged]
        tagged = sorted((f for f in live if v in f.tagged), key=lambda f: f.tag or 0)
        body: list[str] = []
        k = 0
        while k < len(plain):
            run = []
            while k < len(plain) and plain[k].type in INTS:
                run.append(plain[k])
                k += 1
            if run:
                fmt = "".join(INTS[f.type] for f in run)
                names = ", ".join("f_" + f.name for f in run) + ("," if len(run) == 1 else "")
                body.append(f"{names} = {self.unpack(fmt)}(b, p)")
                body.append(f"p += {sum(SIZES[c] for c in fmt)}")
                continue
            body += self.decode_field(msg, plain[k], v, v in plain[k].flexible)
            k += 1
        if flex:
            for f in tagged:
                d = py_default(f)
                if d.startswith("field(default_factory="):
                    d = {"list": "[]"}.get(
                        d[len("field(default_factory=") : -1], d[len("field(default_factory=lambda: ") : -1]
                    )
                body.append(f"f_{f.name}: {py_type(f)} = {d}")
            if not tagged:
                body += ["if b[p] == 0:", "    p += 1", "else:", "    p = skip_tags(b, p, e)"]
            else:
                body += [
                    "n_tags, p = uvarint(b, p)",
                    "while n_tags:",
                    "    n_tags -= 1",
                    "    tag, p = uvarint(b, p)",
                    "    size, p = uvarint(b, p)",
                    "    end = p + size",
                    "    if end > e:",
                    f'        raise WireError("{st.name}: tagged field past the end")',
                ]
                kw = "if"
                for f in tagged:
                    body.append(f"    {kw} tag == {f.tag}:")
                    if f.type in INTS:
                        body.append(f"        (f_{f.name},) = {self.unpack(INTS[f.type])}(b, p)")
                        body.append(f"        p += {SIZES[INTS[f.type]]}")
                    else:
                        body += ["        " + x for x in self.decode_field(msg, f, v, True)]
                    body += [
                        "        if p != end:",
                        f'            raise WireError("{st.name}.{f.name}: tagged field of a wrong size")',
                    ]
                    kw = "elif"
                body += ["    p = end"]
        args = ", ".join(f"f_{f.name}" if v in f.versions else self.literal_default(f) for f in st.fields)
        body.append(f"return {st.name}({args}), p")
        return lines + ["    " + x for x in body]

    def literal_default(self, f: Field) -> str:
        d = py_default(f)
        if d == "field(default_factory=list)":
            return "[]"
        if d.startswith("field(default_factory=lambda: "):
            return d[len("field(default_factory=lambda: ") : -1]
        return d

    def decode_field(self, msg: Message, f: Field, v: int, flex: bool) -> list[str]:
        var = f"f_{f.name}"
        nullable = v in f.nullable
        typed = f"{var}: {py_type(f)}" if f.tag is None or v not in f.tagged else var
        if f.is_array:
            return self.decode_array(msg, f, v, flex, var, nullable, typed)
        if f.is_struct:
            fn = f"_d{self.sub(msg, f.element, v)}_{f.element}"
            if nullable:
                return [
                    f"{typed} = None",
                    "(mark,) = " + self.unpack("b") + "(b, p)",
                    "p += 1",
                    "if mark >= 0:",
                    f"    {var}, p = {fn}(b, p, e)",
                ]
            return [f"{var}, p = {fn}(b, p, e)"]
        return self.decode_scalar(f.type, var, typed, nullable, flex, f.name)

    def decode_scalar(self, t: str, var: str, typed: str, nullable: bool, flex: bool, name: str) -> list[str]:
        if t == "uuid":
            return [
                "q = p + 16",
                "if q > e:",
                f'    raise WireError("{name}: past the end")',
                f"{var} = b[p:q]",
                "p = q",
            ]
        conv = "b[p:q].decode()" if t == "string" else "b[p:q]"
        nul = f"{var} = None" if nullable else f'raise WireError("{name}: null where none is allowed")'
        null_decl = f"{typed} = None" if nullable else nul
        if flex:
            return [
                "n = b[p]",
                "p += 1",
                "if n > 127:",
                "    n, p = uvarint(b, p - 1)",
                "if n == 0:",
                f"    {null_decl}",
                "else:",
                "    q = p + n - 1",
                "    if q > e:",
                f'        raise WireError("{name}: past the end")',
                f"    {var} = {conv}",
                "    p = q",
            ]
        fmt, size = ("h", 2) if t == "string" else ("i", 4)
        return [
            f"(n,) = {self.unpack(fmt)}(b, p)",
            f"p += {size}",
            "if n < 0:",
            f"    {null_decl}",
            "else:",
            "    q = p + n",
            "    if q > e:",
            f'        raise WireError("{name}: past the end")',
            f"    {var} = {conv}",
            "    p = q",
        ]

    def decode_array(
        self, msg: Message, f: Field, v: int, flex: bool, var: str, nullable: bool, typed: str
    ) -> list[str]:
        el = f.element
        size = self.min_size(msg, el, v)
        nul = f"{var} = None" if nullable else f'raise WireError("{f.name}: null where none is allowed")'
        if flex:
            head = ["n = b[p]", "p += 1", "if n > 127:", "    n, p = uvarint(b, p - 1)", "n -= 1"]
        else:
            head = [f"(n,) = {self.unpack('i')}(b, p)", "p += 4"]
        need = f"n * {size}" if size > 1 else "n"
        lines = [*head]
        if nullable:
            lines += [f"{typed} = None"]
        lines += [
            "if n < 0:",
            f"    {nul}" if not nullable else "    pass",
            f"elif {need} > e - p:",
            f'    raise WireError("{f.name}: more elements than bytes")',
            "else:",
        ]
        if el in INTS:
            c = INTS[el]
            lines += [f"    {var} = list(Struct(f'>{{n}}{c}').unpack_from(b, p))", f"    p += n * {SIZES[c]}"]
        else:
            lines += [
                f"    l_{f.name}: list[{py_type(Field('', el, f.versions, NONE, NONE, None, f.flexible, None, []))}] = []",
                "    for _ in range(n):",
            ]
            if el[0].isupper():
                lines += [f"        x, p = _d{self.sub(msg, el, v)}_{el}(b, p, e)"]
                lines += [f"        l_{f.name}.append(x)"]
            else:
                lines += ["        " + x for x in self.decode_scalar(el, "y", "y", False, flex, f.name)]
                lines += [f"        l_{f.name}.append(y)"]
            lines += [f"    {var} = l_{f.name}"]
            lines = [
                x.replace("x, p =", f"x_{f.name}, p =")
                .replace("append(x)", f"append(x_{f.name})")
                .replace("append(y)", f"append(y_{f.name})")
                .replace(" y = ", f" y_{f.name} = ")
                for x in lines
            ]
        return lines

    # ---- encode -----------------------------------------------------------------------------------------
    def emit_encode(self, msg: Message, st: Struct, v: int, i: int) -> list[str]:
        flex = v in msg.flexible
        lines = ["", "", f"def _e{i}_{st.name}(m: {st.name}, o: bytearray) -> None:"]
        live = [f for f in st.fields if v in f.versions]
        plain = [f for f in live if v not in f.tagged]
        tagged = sorted((f for f in live if v in f.tagged), key=lambda f: f.tag or 0)
        body: list[str] = []
        k = 0
        while k < len(plain):
            run = []
            while k < len(plain) and plain[k].type in INTS:
                run.append(plain[k])
                k += 1
            if run:
                fmt = "".join(INTS[f.type] for f in run)
                body.append(f"o += {self.pack(fmt)}({', '.join('m.' + f.name for f in run)})")
                continue
            body += self.encode_field(msg, plain[k], v, v in plain[k].flexible)
            k += 1
        if flex:
            if not tagged:
                body.append("o.append(0)")
            else:
                body.append("tags: list[tuple[int, bytearray]] = []")
                for f in tagged:
                    cond = f"m.{f.name} != {self.literal_default(f)}"
                    if self.literal_default(f) == "None":
                        cond = f"m.{f.name} is not None"
                    body += [f"if {cond}:", "    t = bytearray()"]
                    if f.type in INTS:
                        body.append(f"    t += {self.pack(INTS[f.type])}(m.{f.name})")
                    else:
                        body += [
                            "    " + re.sub(r"\bo\b(?=\.append|\.extend| \+=|, |\))", "t", x)
                            for x in self.encode_field(msg, f, v, True)
                        ]
                    body.append(f"    tags.append(({f.tag}, t))")
                body += [
                    "put_uvarint(o, len(tags))",
                    "for tag, t in tags:",
                    "    put_uvarint(o, tag)",
                    "    put_uvarint(o, len(t))",
                    "    o += t",
                ]
        if not body:
            body = ["pass"]
        return lines + ["    " + x for x in body]

    def encode_field(self, msg: Message, f: Field, v: int, flex: bool) -> list[str]:
        var = f"m.{f.name}"
        nullable = v in f.nullable
        declared_nullable = f.nullable.low <= f.nullable.high
        if f.is_array:
            null = ["o.append(0)"] if flex else [f"o += {self.pack('i')}(-1)"]
            count = [f"put_uvarint(o, len(a_{f.name}) + 1)"] if flex else [f"o += {self.pack('i')}(len(a_{f.name}))"]
            lines = [f"a_{f.name} = {var}"]
            inner = [*count]
            if f.element in INTS:
                c = INTS[f.element]
                inner += [f"o += Struct(f'>{{len(a_{f.name})}}{c}').pack(*a_{f.name})"]
            elif f.is_struct:
                inner += [
                    f"for x_{f.name} in a_{f.name}:",
                    f"    _e{self.sub(msg, f.element, v)}_{f.element}(x_{f.name}, o)",
                ]
            else:
                inner += [
                    f"for y_{f.name} in a_{f.name}:",
                    *["    " + x for x in self.encode_scalar(f.element, f"y_{f.name}", False, False, flex, f.name)],
                ]
            if nullable:
                return [
                    *lines,
                    f"if a_{f.name} is None:",
                    *["    " + x for x in null],
                    "else:",
                    *["    " + x for x in inner],
                ]
            if declared_nullable:
                lines += [f"if a_{f.name} is None:", f'    raise WireError("{f.name}: null where none is allowed")']
            return lines + inner
        if f.is_struct:
            fn = f"_e{self.sub(msg, f.element, v)}_{f.element}"
            if nullable:
                return [f"if {var} is None:", "    o.append(255)", "else:", "    o.append(1)", f"    {fn}({var}, o)"]
            return [f"{fn}({var}, o)"]
        return self.encode_scalar(f.type, var, nullable, declared_nullable, flex, f.name)

    def encode_scalar(self, t: str, var: str, nullable: bool, declared: bool, flex: bool, name: str) -> list[str]:
        if t == "uuid":
            return [f"o += {var}"]
        fmt = "h" if t == "string" else "i"
        raw = f"{var}.encode()" if t == "string" else var
        null = "o.append(0)" if flex else f"o += {self.pack(fmt)}(-1)"
        if flex:
            put = [
                f"s = {raw}",
                "n = len(s) + 1",
                "if n < 128:",
                "    o.append(n)",
                "else:",
                "    put_uvarint(o, n)",
                "o += s",
            ]
        else:
            put = [f"s = {raw}", f"o += {self.pack(fmt)}(len(s))", "o += s"]
        if nullable:
            return [f"if {var} is None:", "    " + null, "else:", *["    " + x for x in put]]
        if declared:
            return [f"if {var} is None:", f'    raise WireError("{name}: null where none is allowed")', *put]
        return put


def render(zf: zipfile.ZipFile, kafka: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for name in SERVED:
        messages = [parse_message(load(zf, name + kind)) for kind in ("Request", "Response")]
        files[f"{snake(name)}.py"] = Emitter(messages, kafka).run()
    files["headers.py"] = Emitter([parse_message(load(zf, h)) for h in HEADERS], kafka).run()
    doc = f'"""Generated by tools/generate_wire.py from Kafka {kafka}. Do not edit."""\n\nKAFKA_VERSION = "{kafka}"\n'
    files["__init__.py"] = doc
    return files


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--jar", type=Path, required=True)
    ap.add_argument("--out", type=Path, default=Path("sidecar/wire/generated"))
    ap.add_argument("--check", action="store_true")
    a = ap.parse_args()
    kafka = re.search(r"kafka-clients-([\d.]+)\.jar$", a.jar.name)
    if kafka is None:
        ap.error(f"{a.jar.name}: expected kafka-clients-VERSION.jar")
    with zipfile.ZipFile(a.jar) as zf:
        files = render(zf, kafka.group(1))
    if a.check:
        bad = [n for n, text in files.items() if not (a.out / n).exists() or (a.out / n).read_text() != text]
        extra = [p.name for p in a.out.glob("*.py") if p.name not in files]
        for n in bad + extra:
            print(f"differs from what Kafka {kafka.group(1)} gives: {a.out / n}", file=sys.stderr)
        return 1 if bad or extra else 0
    a.out.mkdir(parents=True, exist_ok=True)
    for n, text in files.items():
        (a.out / n).write_text(text)
    print(f"{len(files)} files from Kafka {kafka.group(1)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
