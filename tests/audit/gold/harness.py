"""Gold of rows of silver, in one batch or several, and what makes two results comparable."""

from __future__ import annotations

import bisect
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa

from sidecar.audit.decode.decoder import times
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import fold
from sidecar.audit.gold.frames import Frame, database
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.layers import SILVER_TABLES
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import by_table

Tables = dict[str, list[Row]]


def rows_of(table: Table, rows: list[Row]) -> pa.Table:
    made = pa.Table.from_pylist(rows, schema=pa.schema([pa.field(c.name, c.type) for c in table.columns]))
    for name in {"log_time", "written_time"} & {*made.column_names}:
        timed = times(made[f"{name[:-4]}ms"])
        made = made.set_column(made.column_names.index(name), made.schema.field(name), timed)
    return made


def read(frame: Frame) -> pa.Table:
    schema = pa.schema([])
    batches = list(frame.batches())
    return pa.Table.from_batches(batches, batches[0].schema if batches else schema)


def gold(
    rows: list[Row], cuts: list[dict[int, int]] | None = None, unread: list[dict[int, tuple[int, int]]] | None = None
) -> Tables:
    """All rows that were added, and those that are open after the last batch. `cuts`: per batch, and per state
    partition, the offset at which it ends. `unread`: per batch, and per state partition, the offsets right before it
    that were never read."""
    ends = [*(cuts or []), {}]
    done: dict[int, int] = defaultdict(int)
    found: Tables = defaultdict(list)
    left: dict[str, pa.Table] = {}
    still_open: Tables = {}
    for end, never in zip(ends, unread or [{} for _ in ends], strict=True):
        part = [r for r in rows if done[r["state_partition"]] <= r["offset"] < end.get(r["state_partition"], 1 << 60)]
        for r in part:
            done[r["state_partition"]] = max(done[r["state_partition"]], r["offset"] + 1)
        with database() as db:
            silver = {n: db.rows(rows_of(SILVER_TABLES[n], rs)) for n, rs in by_table(part).items() if rs}
            carried = {n: db.rows(kept) for n, kept in left.items() if kept.num_rows}
            made = fold(db, silver, carried, never)
            still_open = {}
            for name, frame in made.gold.items():
                told = untimed(read(frame)).to_pylist()
                still_open[name] = [r for r in told if r.get("open")]
                found[name] += [r for r in told if not r.get("open")]
            left = {name: typed(CARRIED[name], read(rs)) for name, rs in made.carried.items()}
    for name, rs in still_open.items():
        found[name] += rs
    return found


def untimed(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([c for c in rows.column_names if c.endswith("time")])


def typed(table: Table, rows: pa.Table) -> pa.Table:
    """With the names that parts of lists have in the lake."""
    schema = pa.schema([pa.field(c.name, c.type) for c in table.columns])
    return rows.cast(schema) if rows.num_columns else schema.empty_table()


def some_cuts(rng: random.Random, rows: list[Row], batches: int) -> list[dict[int, int]]:
    last: dict[int, int] = {}
    for r in rows:
        last[r["state_partition"]] = max(r["offset"], last.get(r["state_partition"], 0))
    points = {p: sorted(rng.randrange(n + 2) for _ in range(batches - 1)) for p, n in last.items()}
    return [{p: at[i] for p, at in points.items()} for i in range(batches - 1)]


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, frozen(v)) for k, v in sorted(value.items()))
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def as_set(rows: list[Row], columns: list[str] | None = None) -> set[Any]:
    made = [frozen({c: r[c] for c in columns} if columns else r) for r in rows]
    assert len(made) == len(set(made)), "a row is there twice"
    return set(made)


def differences(gold_rows: Tables, told: Tables, most: int = 4) -> list[str]:
    """Returns the differences between gold and the replay, in the replay's columns."""
    found = []
    for name in sorted({*gold_rows, *told}):
        theirs = told.get(name, [])
        columns = list(theirs[0]) if theirs else None
        if columns is None:
            if gold_rows[name] and name != "coverage":
                found.append(f"{name}: {len(gold_rows[name])} rows too many, such as {gold_rows[name][:1]}")
            continue
        a, b = as_set(gold_rows.get(name, []), columns), as_set(theirs)
        found += [f"{name}: only in gold: {dict(x)}" for x in sorted(a - b, key=repr)[:most]]
        found += [f"{name}: only in the replay: {dict(x)}" for x in sorted(b - a, key=repr)[:most]]
    return found


def by_offset(rows: list[Row]) -> list[int]:
    return sorted(r["offset"] for r in rows)


def last_before(offsets: list[int], offset: int) -> int | None:
    at = bisect.bisect_left(offsets, offset)
    return offsets[at - 1] if at else None
