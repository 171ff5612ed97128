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
from sidecar.audit.gold.tasks import Unit, Work, gold_of_units, planned
from sidecar.audit.lake.files import Target
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES
from tests.audit.gold.harness import Tables, as_set, gold, rows_of, some_cuts, untimed
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import by_table, simulated
from tests.harness.tiers import seeds_of_run

SEEDS = 3


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for n, seed in enumerate(seeds_of_run(SEEDS)) for row in simulated(seed, 10 * n)]


def silver(folder: Path, rows: list[Row]) -> dict[str, list[str]]:
    found = {}
    for name, part in by_table(rows).items():
        if part:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_of(SILVER_TABLES[name], part), folder / f"{name}.parquet")
            found[name] = [str(folder / f"{name}.parquet")]
    return found


def batch(folder: Path, units: list[Unit], work: Work) -> dict[str, list[str]]:
    """Paths of what the units wrote, by layer and table."""
    files: dict[str, list[str]] = defaultdict(list)
    targets = {f"gold.{n}": Target(t, str(folder / "gold" / n), "") for n, t in GOLD.items()}
    targets |= {f"carried.{n}": Target(t, str(folder / "carried" / n), "") for n, t in CARRIED.items()}
    for said in gold_of_units(units, replace(work, targets=targets), iter(range(len(units)))):
        told = json.loads(said)
        files[told["table"]].append(str(Path(targets[told["table"]].folder, told["file"]["path"])))
    return files


def folders(path: str) -> dict[str, bool]:
    """Returns the columns that are in the names of a file's folders."""
    return {"open": "/open=true/" in path} if "/open=" in path else {}


def folded(folder: Path, batches: list[list[Row]], units: list[Unit]) -> Tables:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    last: dict[str, list[dict[str, Any]]] = {}
    carried: dict[str, list[str]] = {}
    for n, part in enumerate(batches):
        files = batch(folder / str(n), units, Work(silver(folder / str(n) / "silver", part), carried, {}))
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


APART = [*(Unit((p,)) for p in range(2)), Unit(tuple(range(2, 40)))]


@pytest.mark.tier("test")  # three logs by ten processes of DuckDB
def test_partitions_are_folded_together_or_apart_and_gold_is_the_same(rows: list[Row], tmp_path: Path) -> None:
    whole = gold(rows)
    assert len({min(r["state_partition"], 2) for r in whole["intervals"]}) > 1, "some are apart and some are not"
    (cut,) = some_cuts(random.Random(5), rows, 2)
    first = [r for r in rows if r["offset"] < cut[r["state_partition"]]]
    second = [r for r in rows if r["offset"] >= cut[r["state_partition"]]]
    together = [Unit(tuple(range(40)))]
    for name, batches, units in (
        ("together", [rows], together),
        ("apart", [rows], APART),
        ("in two batches", [first, second], APART),
    ):
        told = folded(tmp_path / name, batches, units)
        for table in GOLD:
            assert as_set(told[table]) == as_set(whole.get(table, [])), (name, table)


def test_each_partition_is_in_one_unit_and_a_large_one_is_alone() -> None:
    rows = dict(enumerate((10, 3_000_000, 900_000, 400_000, 0, 1_000_001, 5)))
    units = planned(rows, parallelism=2)
    assert sorted(p for u in units for p in u.partitions) == sorted(rows)
    assert {(1,), (5,)} < {u.partitions for u in units}


def test_units_of_many_rows_come_first() -> None:
    rows = dict(enumerate((10, 3_000_000, 900_000, 400_000, 0, 1_000_001, 5)))
    units = planned(rows, parallelism=2)
    assert [u.rows for u in units] == sorted((u.rows for u in units), reverse=True) and units[0].rows > 0


def test_few_rows_are_for_few_tasks() -> None:
    assert planned(dict.fromkeys(range(50), 10), parallelism=8) == [Unit(tuple(range(50)))]
    assert len(planned(dict.fromkeys(range(50), 1_000), parallelism=8)) == 3
    assert len(planned(dict.fromkeys(range(50), 100_000), parallelism=2)) == 10
    assert planned({}, parallelism=2) == []
    assert planned({3: 0}, parallelism=2) == [Unit((3,))]
