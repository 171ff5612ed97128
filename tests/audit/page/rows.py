"""Rows for the tables of gold, with sane values for what a test does not name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from sidecar.audit.page.pack import RISING
from sidecar.audit.tables.columns import FLAG, INT, LONG
from sidecar.audit.tables.gold import GOLD

BEGIN = 1_763_856_000_000
"""2025-11-23 00:00 UTC."""

Row = dict[str, Any]
Tables = dict[str, Any]
DEFAULTS: Row = {
    "group_id": "g",
    "kind": "consumer",
    "topic_key": "id-t",
    "topic_id": "id-t",
    "topic": "t",
    "partition": 0,
    "member_id": "m-1",
    "client_id": "client",
    "client_host": "/10.0.0.1",
    "grade": "proven",
    "cause": "joined",
    "from_exact": True,
    "claim": 1,
    "node_id": 1,
    "records": 10,
    "first_ms": BEGIN,
    "scope": "partition",
    "whole_from_offset": 0,
    "partitions": [0],
}


@cache
def _sane(table: str) -> Row:
    made: Row = {}
    for c in GOLD[table].columns:
        if c.name in DEFAULTS:
            made[c.name] = DEFAULTS[c.name]
        elif c.null:
            made[c.name] = None
        else:
            made[c.name] = 0 if c.type in (INT, LONG) else False if c.type == FLAG else ""
    return made


@cache
def _times(table: str) -> list[tuple[str, str]]:
    """Columns with a time, each with the one that has it in milliseconds."""
    return [(n, f"{n[:-4]}ms") for n in _sane(table) if n.endswith("_time") or n == "time"]


def row(table: str, ms: int = 0, to_ms: int | None = None, **values: Any) -> Row:
    """`ms`, `to_ms`: after BEGIN. What a table calls `from_`, `to_` or nothing at all is made from them."""
    made = dict(_sane(table))
    offset, to_offset = values.pop("offset", ms), values.pop("to_offset", to_ms)
    begin = "from_" if "from_offset" in made and table != "second_owners" else "log_" if table == "unreadable" else ""
    given = {"offset": offset, f"{begin}offset": offset, f"{begin}ms": BEGIN + ms, f"{begin}written_ms": BEGIN + ms}
    if to_offset is not None:
        end = BEGIN + (to_ms or 0)
        given |= {"to_offset": to_offset, "to_ms": end, "to_not_before_offset": to_offset - 1, "to_exact": True}
    given |= {
        "to_why": None if to_offset is None else "",
        "open": to_offset is None,
        "from_not_before_offset": offset - 1,
    }
    for name, value in (given | values).items():
        if name in made:
            made[name] = value
    for name, of in _times(table):
        ms_of = made.get(of)
        made[name] = None if ms_of is None else ms_of * 1000
    unknown = values.keys() - made.keys()
    assert not unknown, f"{table} has no {unknown}"
    return made


def covered(until: int, partition: int = 0, **values: Any) -> Row:
    end = {"last_ms": BEGIN + until, "last_offset": until}
    return row("coverage", state_partition=partition, group_id="", **end, **values)


def tables(rows: Mapping[str, Iterable[Row]], *, without: Iterable[str] = ()) -> Tables:
    """All tables of gold, empty where there are no rows."""
    left = set(GOLD) - set(without)
    assert set(rows) <= left
    return {n: pa.Table.from_pylist(list(rows.get(n, ())), schema=t.arrow) for n, t in GOLD.items() if n in left}


def unpacked(found: Mapping[str, Any], name: str) -> dict[str, list[Any]]:
    """Returns the columns of a table of the page's data, as its script unpacks them (page/parts/data.js)."""
    packed, out = found["tables"][name], {}
    for column, values in packed["columns"].items():
        if isinstance(values, dict):
            values = [values.get(str(n), values[""]) for n in range(packed["rows"])]
        out[column] = list(accumulate(values)) if column in RISING else values
    return out


def said(found: Mapping[str, Any], name: str, column: str) -> list[str]:
    return [found["texts"][n] for n in unpacked(found, name)[column]]
