"""The page of any tables that a lake may have: with odd names and times, without rows, without tables."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pyarrow as pa

from sidecar.audit.moments import LAST_MS
from sidecar.audit.page import Budget, Period, build, view
from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, Column
from sidecar.audit.tables.gold import GOLD
from tests.audit.page.rows import BEGIN, unpacked
from tests.harness.tiers import Seeds

NAMES = ("g", "", "</script><img onerror=x>", "\u2028\n\t\0", "\u202eevil", "x" * 30_000, "😀", "a'\"\\", "__proto__")
TIMES = (0, 1, BEGIN, BEGIN + 1, BEGIN + 100_000, LAST_MS)
WORDS = {
    "grade": ("proven", "possible"),
    "kind": ("consumer", "classic", "share", "streams"),
    "role": ("active", "standby", "warmup"),
    "scope": ("partition", "group"),
}
COUNTS = {INT: (0, 1, (1 << 31) - 1), LONG: (0, 1, 5, 1 << 62), FLAG: (False, True), TEXT: NAMES}


def value(r: random.Random, column: Column) -> Any:
    name = column.name
    if column.null and r.random() < 0.4:
        return None
    if name in ("state_partition", "partition"):
        return r.randrange(2)
    if pa.types.is_list(column.type):
        return r.choice(([], [1, 2] if column.type.value_type == INT else ["a", "b"]))
    return r.choice(TIMES if name.endswith(("ms", "time")) else WORDS.get(name, COUNTS.get(column.type, ())))


def test_any_tables_make_a_page(seeds: Seeds) -> None:
    for seed in seeds.of(150):
        _make(random.Random(seed), f"seed {seed}")


def _make(r: random.Random, seed: str) -> None:
    tables = {
        name: pa.Table.from_pylist(
            [{c.name: value(r, c) for c in table.columns} for _ in range(r.choice((0, 1, 2, 5)))], schema=table.arrow
        )
        for name, table in GOLD.items()
        if r.random() < 0.9
    }
    limits = {name: r.choice((0, 1, 1000)) for name in ("intervals", "unowned", "rebalances", "members", "findings")}
    shown = view(
        tables,
        groups=() if r.random() < 0.6 else (r.choice(NAMES),),
        title=r.choice(NAMES),
        until_ms=r.choice(TIMES),
        period=None if r.random() < 0.5 else Period(r.choice(TIMES), r.choice(TIMES)),
        budget=Budget(**limits, reasons=r.choice((0, 10, 10_000))),
    )
    page = build(shown)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None and json.loads(data[1]) == json.loads(json.dumps(shown)), seed
    assert "<img" not in page and shown["from"] < shown["until"], seed
    findings, groups = unpacked(shown, "findings"), len(shown["groups"])
    assert all(-1 <= g < groups for g in findings["group"]) and len(findings["t"]) == len(findings["text"]), seed
    faults = sum(n for key, _, n, _ in shown["kinds"] if key in ("overlap", "stale"))
    assert shown["verdict"]["state"] == "findings" or not faults, seed
