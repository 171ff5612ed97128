"""Gold of rows of silver, in one batch or several, and what makes two results comparable."""

from __future__ import annotations

import bisect
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.columns import Table
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import fold
from sidecar.audit.layers import SILVER_TABLES
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import by_table

Tables = dict[str, list[Row]]


def frame(spark: SparkSession, table: Table, rows: list[Row]) -> DataFrame:
    schema = pa.schema([pa.field(c.name, c.type) for c in table.columns])
    timed = [
        {**r, **{n: r[f"{n[:-4]}ms"] * 1_000 for n in ("log_time", "written_time") if r.get(f"{n[:-4]}ms")}}
        for r in rows
    ]
    return spark.createDataFrame(pa.Table.from_pylist(timed, schema=schema)).coalesce(1)


def gold(spark: SparkSession, rows: list[Row], cuts: list[dict[int, int]] | None = None) -> Tables:
    """All rows that were added, and those that are open after the last batch. `cuts`: per batch, and per state
    partition, the offset at which it ends."""
    ends = [*(cuts or []), {}]
    done: dict[int, int] = defaultdict(int)
    found: Tables = defaultdict(list)
    carried: dict[str, DataFrame] = {}
    still_open: Tables = {}
    for i, end in enumerate(ends):
        part = [r for r in rows if done[r["state_partition"]] <= r["offset"] < end.get(r["state_partition"], 1 << 60)]
        for r in part:
            done[r["state_partition"]] = max(done[r["state_partition"]], r["offset"] + 1)
        silver = {n: frame(spark, SILVER_TABLES[n], rs) for n, rs in by_table(part).items() if rs}
        if not silver:
            continue
        made = fold(silver, carried, large=i % 2 == 0)
        for name, df in made.added.items():
            found[name] += df.drop(*times(df)).toArrow().to_pylist()
        still_open = {name: df.drop(*times(df)).toArrow().to_pylist() for name, df in made.open.items()}
        left = {name: df.toArrow() for name, df in made.carried.items()}
        carried = {
            name: spark.createDataFrame(rows, CARRIED[name].ddl).coalesce(1)
            for name, rows in left.items()
            if rows.num_rows
        }
    for name, rs in still_open.items():
        found[name] += rs
    return found


def times(df: DataFrame) -> list[str]:
    return [c for c in df.columns if c.endswith("time")]


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
    """Where gold and the replay differ, in the columns that the replay knows."""
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
