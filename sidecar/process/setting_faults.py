"""Faults of settings in an operator's words: pydantic's are a programmer's. Imported only when there is a fault."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from sidecar.core.vocabulary.group_patterns import split

NEAR = 0.75
"""Least similarity of two names, for difflib, at which one may be the other with a typing error."""
UNITS = {"_ms": ("milliseconds", "3000"), "_s": ("seconds", "60"), "_bytes": ("bytes", "1048576")}
"""End of a setting's name -> the unit of its number, and an example."""
IN_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
IN_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
QUANTITY = re.compile(r"(\d+) ?([a-z]+)")
NUMBERS = ("int_type", "int_parsing", "int_from_float", "float_type", "float_parsing")


def words(model: type[BaseModel], error: Mapping[str, Any]) -> str:
    """Returns one line for one of pydantic's errors."""
    name = ".".join(map(str, error["loc"])) or "settings"
    kind, given = error["type"], error["input"]
    if kind == "extra_forbidden":
        return f"{name}: unknown setting{did_you_mean(nearest(model, [str(part) for part in error['loc']]))}"
    if kind == "tuple_type":
        return f"{name}: a list is needed, as {_list(given)}"
    if kind in NUMBERS:
        return f"{name}: {given!r} is not {_number(name, given, kind)}"
    if kind in ("model_type", "dict_type"):
        return f"{name}: it is a section, with settings of its own below it"
    if kind == "string_pattern_mismatch":
        return f"{name}: {given!r} is not one of {', '.join(error['ctx']['pattern'].strip('^()$').split('|'))}"
    return f"{name}: {re.sub(r'^Value error, ', '', error['msg'])}"


def did_you_mean(name: Sequence[str], join: str = ".", prefix: str = "") -> str:
    return f"; did you mean `{prefix}{join.join(name)}`?" if name else ""


def nearest(model: type[BaseModel], path: Sequence[str]) -> tuple[str, ...]:
    """Returns the setting or section that was probably meant by an unknown name; empty if none is near."""
    first, *rest = path
    if first in model.model_fields:
        section = _section(model.model_fields[first].annotation)
        inner = nearest(section, rest) if rest and section is not None else ()
        return (first, *inner) if inner else ()
    alike = first.lower().replace("-", "_").replace(".", "_")
    if near := difflib.get_close_matches(alike, model.model_fields, 1, NEAR):
        whole = (near[0], *rest)
        return whole if whole in set(_paths(model)) else (near[0],)
    elsewhere = [candidate for candidate in _paths(model) if candidate[-1] == alike]
    return elsewhere[0] if len(elsewhere) == 1 else ()


def not_json(variable: str, value: str, section: bool) -> str:
    """Returns the fault of an environment variable of a list or of a section whose value is not JSON."""
    if section:
        return f"{variable}: it is a section: set its settings one by one, as {variable}__NAME, or all of them as JSON"
    return f"{variable}: a list in JSON is needed, as {variable}={shlex.quote(_list(value))}"


def _section(kind: Any) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is None:
            yield (name,)
        else:
            yield from ((name, *inner) for inner in _paths(section))


def _list(given: Any) -> str:
    """Returns the given text as a JSON list, which is YAML, too."""
    text = given.strip() if isinstance(given, str) else ""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    parts = [part.strip("'\" ") for part in split(text)]
    return json.dumps(parts or ["orders.*"])


def _number(name: str, given: Any, kind: str) -> str:
    for end, (unit, example) in UNITS.items():
        if name.endswith(end):
            return f"a whole number of {unit}, as {_converted(end, str(given)) or example}"
    return "a number" if kind.startswith("float") else "a whole number"


def _converted(end: str, given: str) -> str:
    """Returns `3s` as milliseconds, `100MB` as bytes; empty if the text is neither."""
    match = QUANTITY.fullmatch(given.strip().lower())
    if match is None:
        return ""
    count, unit = int(match[1]), match[2]
    if end == "_bytes":
        times = IN_BYTES.get(unit.removesuffix("ib") if len(unit) > 2 else unit.removesuffix("b") or unit)
        return "" if times is None else str(count * times)
    ms = count * IN_MS.get(unit, 0)
    return str(ms // 1_000 if end == "_s" else ms) if ms else ""
