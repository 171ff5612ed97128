"""Tasks on files: however state partitions are put together or taken apart, gold is the same."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.tasks import ALL, BETWEEN, GROUPS, PARTITIONS, PLACES, Unit, Work, gold_of_units, planned
from sidecar.audit.lake.files import Target
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES
from tests.audit.gold.harness import Tables, as_set, gold, rows_of, some_cuts, untimed
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import by_table, simulated

SEEDS = range(3)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for seed in SEEDS for row in simulated(seed, 10 * seed)]


def silver(folder: Path, rows: list[Row]) -> dict[str, list[str]]:
    found = {}
    for name, part in by_table(rows).items():
        if part:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_of(SILVER_TABLES[name], part), folder / f"{name}.parquet")
            found[name] = [str(folder / f"{name}.parquet")]
    return found


def batch(folder: Path, steps: list[list[Unit]], work: Work) -> dict[str, list[str]]:
    """Paths of what the steps wrote, by layer and table."""
    files: dict[str, list[str]] = defaultdict(list)
    targets = {f"gold.{n}": Target(t, str(folder / "gold" / n), "") for n, t in GOLD.items()}
    for layer, tables in (("carried", CARRIED), ("between", BETWEEN)):
        targets |= {f"{layer}.{n}": Target(t, str(folder / layer / n), "") for n, t in tables.items()}
    for units in steps:
        between = {n: list(files[f"between.{n}"]) for n in BETWEEN}
        for said in gold_of_units(units, replace(work, targets=targets, between=between), iter(range(len(units)))):
            told = json.loads(said)
            files[told["table"]].append(str(Path(targets[told["table"]].folder, told["file"]["path"])))
    return files


def folders(path: str) -> dict[str, bool]:
    """Returns the columns that are in the names of a file's folders."""
    return {"open": "/open=true/" in path} if "/open=" in path else {}


def folded(folder: Path, batches: list[list[Row]], steps: list[list[Unit]]) -> Tables:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    last: dict[str, list[dict[str, Any]]] = {}
    carried: dict[str, list[str]] = {}
    for n, part in enumerate(batches):
        files = batch(folder / str(n), steps, Work(silver(folder / str(n) / "silver", part), carried, {}))
        last = {}
        for name in GOLD:
            told = [
                {**row, **folders(p)} for p in files[f"gold.{name}"] for row in pq.ParquetFile(p).read().to_pylist()
            ]
            plain = untimed(pa.Table.from_pylist(told)).to_pylist() if told else []
            last[name] = [r for r in plain if r.get("open")]
            found[name] += [r for r in plain if not r.get("open")]
        carried = {n: files[f"carried.{n}"] for n in CARRIED if files[f"carried.{n}"]}
    return {name: found[name] + last.get(name, []) for name in GOLD}


PARTS = 2
APART = [
    [Unit(PARTITIONS, (p,)) for p in range(2)] + [Unit(ALL, tuple(range(2, 40)))],
    [Unit(GROUPS, (p,), i, PARTS) for p in range(2) for i in range(PARTS)],
    [Unit(PLACES, (p,), i, PARTS) for p in range(2) for i in range(PARTS)],
]


@pytest.mark.tier("test")  # three logs by 30 processes of DuckDB
def test_large_partitions_are_taken_apart_and_gold_is_the_same(rows: list[Row], tmp_path: Path) -> None:
    whole = gold(rows)
    assert {r["state_partition"] for r in whole["intervals"]} > {0, 1}, "some are large and some are not"
    (cut,) = some_cuts(random.Random(5), rows, 2)
    first = [r for r in rows if r["offset"] < cut[r["state_partition"]]]
    second = [r for r in rows if r["offset"] >= cut[r["state_partition"]]]
    together = [[Unit(ALL, tuple(range(40)))]]
    for name, batches, steps in (
        ("together", [rows], together),
        ("apart", [rows], APART),
        ("in two batches", [first, second], APART),
    ):
        told = folded(tmp_path / name, batches, steps)
        for table in GOLD:
            assert as_set(told[table]) == as_set(whole.get(table, [])), (name, table)


def test_each_row_is_in_one_unit_of_each_step() -> None:
    rows = dict(enumerate((10, 3_000_000, 900_000, 400_000, 0, 1_000_001, 5)))
    first, groups, places = planned(rows, parallelism=2)
    assert sorted(p for u in first for p in u.partitions) == sorted(rows)
    assert {u.partitions for u in first if u.step == PARTITIONS} == {(1,), (5,)}
    for step, units in ((GROUPS, groups), (PLACES, places)):
        assert [(u.step, u.partitions, u.part, u.parts) for u in units] == [
            *((step, (1,), i, 6) for i in range(6)),
            *((step, (5,), i, 3) for i in range(3)),
        ]


def test_units_of_many_rows_come_first() -> None:
    rows = dict(enumerate((10, 3_000_000, 900_000, 400_000, 0, 1_000_001, 5)))
    for units in planned(rows, parallelism=2):
        assert [u.rows for u in units] == sorted((u.rows for u in units), reverse=True) and units[0].rows > 0


def test_few_rows_are_for_few_tasks() -> None:
    assert planned(dict.fromkeys(range(50), 10), parallelism=8) == [[Unit(ALL, tuple(range(50)))]]
    assert len(planned(dict.fromkeys(range(50), 1_000), parallelism=8)[0]) == 3
    assert len(planned(dict.fromkeys(range(50), 100_000), parallelism=2)[0]) == 10
    assert planned({}, parallelism=2) == []
    assert planned({3: 0}, parallelism=2) == [[Unit(ALL, (3,))]]
