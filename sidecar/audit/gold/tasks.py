"""The executors' part in a batch of gold: each task folds some state partitions, reading and writing the lake's files.
Only names of files and counts come to the driver. A task folds a large state partition alone, and what does not fit
into its memory goes to the executor's disk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.audit.gold.batch import Batch, Frames
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import Cuts, fold
from sidecar.audit.gold.frames import Database, database
from sidecar.audit.lake.files import TableWriter, Target, reports
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.layers import SILVER_TABLES

ROWS_PER_TASK = 500_000
FEWEST_ROWS = 20_000
"""For less it does not pay to start another task."""


@dataclass(frozen=True)
class Unit:
    """State partitions that are folded together. `rows`: about how many they have."""

    partitions: tuple[int, ...]
    rows: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Work:
    """Files of the tables that a batch reads, and where it writes. `memory`: of each task, as DuckDB spells it; empty:
    its share of what there is. `cuts`: of state partitions, the offsets right before the batch that were never read."""

    silver: Mapping[str, Sequence[str]]
    carried: Mapping[str, Sequence[str]]
    targets: Mapping[str, Target]
    memory: str = ""
    cuts: Cuts = field(default_factory=dict)


def planned(rows: Mapping[int, int], parallelism: int, rows_per_task: int = ROWS_PER_TASK) -> list[Unit]:
    """The units of a batch, those of many rows first. `rows`: about how many each state partition has."""
    total = sum(rows.values())
    count = max(1, math.ceil(total / rows_per_task), min(parallelism, math.ceil(total / FEWEST_ROWS)))
    bins: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for p in sorted(rows, key=lambda p: (-rows[p], p)):
        least = filled.index(min(filled))
        bins[least].append(p)
        filled[least] += max(1, rows[p])
    units = [Unit(tuple(sorted(b)), n) for b, n in zip(bins, filled, strict=True) if b]
    return sorted(units, key=lambda u: (-u.rows, u.partitions))  # who begins late must not go on longest


def gold_of_units(units: Sequence[Unit], work: Work, ids: Iterator[int]) -> list[str]:
    """Folds the units of these numbers. Returns reports of the files it wrote."""
    writers: dict[str, TableWriter] = {}
    for i in ids:
        with database(work.memory) as db:
            _write(_folded(db, units[i], work), work, writers)
    return reports(writers)


def _folded(db: Database, unit: Unit, work: Work) -> Batch:
    mine = f"state_partition in ({', '.join(map(str, unit.partitions))})"

    def read(known: Mapping[str, Table], files: Mapping[str, Sequence[str]]) -> Frames:
        return {name: db.files(known[name], paths, mine) for name, paths in files.items()}

    cut = {p: work.cuts[p] for p in unit.partitions if p in work.cuts}
    return fold(db, read(SILVER_TABLES, work.silver), read(CARRIED, work.carried), cut)


def _write(folded: Batch, work: Work, writers: dict[str, TableWriter]) -> None:
    frames = {f"gold.{name}": frame for name, frame in folded.gold.items()}
    frames |= {f"carried.{name}": frame for name, frame in folded.carried.items()}
    for name, frame in frames.items():
        if name in work.targets:  # all others have this batch already
            writer = writers.setdefault(name, TableWriter(work.targets[name]))
            for batch in frame.batches():
                writer.write(batch)
