"""The executors' part in a batch of gold: each task folds some state partitions, reading and writing the lake's files.

A state partition that is too large for one task is folded in three steps, each with tasks of its own: the tables of
it as a whole; then parts of its groups; then parts of the places that these groups own, so that also one huge group
has many tasks where most of its rows are. What a step leaves for the next are files as well. Only names of files and
counts come to the driver.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import Cuts, Folded, Frames, fold, fold_groups, fold_partitions, fold_places
from sidecar.audit.gold.frames import Database, database, shape
from sidecar.audit.lake.files import TableWriter, Target, reports, typed
from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, Column, Table, by_name, many
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES

ROWS_PER_TASK = 500_000
FEWEST_ROWS = 20_000
"""For less it does not pay to start another task."""
ALL, PARTITIONS, GROUPS, PLACES = "all", "partitions", "groups", "places"
OF_GROUP = "group_id"
OF_PLACE = "concat_ws('|', group_id, topic_key, partition)"


def _between(name: str, **columns: object) -> Table:
    return Table("between", name, "", (), tuple(Column(n, t, "", "unknown") for n, t in columns.items()))


BETWEEN = by_name(
    (
        _between("whole", state_partition=INT, whole_from=LONG, until=LONG),
        _between("cuts", state_partition=INT, from_offset=LONG, until_offset=LONG, written_ms=LONG, is_new=FLAG),
        _between("epochs", state_partition=INT, group_id=TEXT, kind=TEXT, member_id=TEXT, epoch=INT),
        _between(
            "wanted",
            state_partition=INT,
            group_id=TEXT,
            n=LONG,
            ms=LONG,
            written_ms=LONG,
            stateful=many(TEXT),
            wanted=INT,
        ),
        _between(
            "events",
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            topic_key=TEXT,
            partition=INT,
            topic=TEXT,
            member_id=TEXT,
            type=TEXT,
            offset=LONG,
            ms=LONG,
            written_ms=LONG,
            why=TEXT,
            exact=FLAG,
            not_before=LONG,
            missing=LONG,
            epoch=INT,
            b_epoch=INT,
        ),
    )
)
"""The tables that one step leaves for the next."""


@dataclass(frozen=True)
class Unit:
    """State partitions that are folded together, or a `part` of one: of all `parts`, that one. `rows`: about how many
    it has."""

    step: str
    partitions: tuple[int, ...]
    part: int = 0
    parts: int = 1
    rows: int = field(default=0, compare=False)

    def where(self, table: Table) -> str:
        """The rows of the table that it takes."""
        mine = f"state_partition in ({', '.join(map(str, self.partitions))})"
        named, split = ("topic_key", OF_PLACE) if self.step == PLACES else ("group_id", OF_GROUP)
        if self.parts == 1 or named not in table.names:
            return mine
        return f"{mine} and md5_number_lower({split}) % {self.parts} = {self.part}"


@dataclass(frozen=True)
class Work:
    """Files of the tables that a batch reads, and where it writes. `memory`: of each task, as DuckDB spells it; empty:
    its share of what there is. `cuts`: of state partitions, the offsets right before the batch that were never read."""

    silver: Mapping[str, Sequence[str]]
    carried: Mapping[str, Sequence[str]]
    targets: Mapping[str, Target]
    memory: str = ""
    between: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cuts: Cuts = field(default_factory=dict)


def planned(rows: Mapping[int, int], parallelism: int, rows_per_task: int = ROWS_PER_TASK) -> list[list[Unit]]:
    """The units of each step, those of many rows first. `rows`: about how many each state partition has."""
    large = {p: math.ceil(n / rows_per_task) for p, n in rows.items() if n > 2 * rows_per_task}
    rest = {p: n for p, n in rows.items() if p not in large}
    total = sum(rest.values())
    count = max(1, math.ceil(total / rows_per_task), min(parallelism, math.ceil(total / FEWEST_ROWS)))
    bins: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for p in sorted(rest, key=lambda p: (-rest[p], p)):
        least = filled.index(min(filled))
        bins[least].append(p)
        filled[least] += max(1, rest[p])
    first = [Unit(PARTITIONS, (p,), rows=rows[p]) for p in large]
    first += [Unit(ALL, tuple(sorted(b)), rows=n) for b, n in zip(bins, filled, strict=True) if b]
    first.sort(key=lambda u: (-u.rows, u.partitions))  # who begins late must not go on longest
    parts = [
        [Unit(step, (p,), i, n, rows[p] // n) for p, n in sorted(large.items()) for i in range(n)]
        for step in (GROUPS, PLACES)
    ]
    return [units for units in (first, *parts) if units]


@contextmanager
def folding(memory: str = "") -> Iterator[Database]:
    """A database for one fold, with the executor's disk for what does not fit into its memory."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    with (
        tempfile.TemporaryDirectory(prefix="sidecar-audit-", dir=folders[0] or None) as spill,
        database(memory, spill) as db,
    ):
        yield db


def gold_of_units(units: Sequence[Unit], work: Work, ids: Iterator[int]) -> list[str]:
    """Folds the units of these numbers. Returns reports of the files it wrote."""
    writers: dict[str, TableWriter] = {}
    for i in ids:
        with folding(work.memory) as db:
            _write(_folded(db, units[i], work), work, writers)
    return reports(writers)


def _folded(db: Database, unit: Unit, work: Work) -> Folded:
    def read(known: Mapping[str, Table], files: Mapping[str, Sequence[str]]) -> Frames:
        return {name: db.files(known[name], paths, unit.where(known[name])) for name, paths in files.items()}

    silver, carried = read(SILVER_TABLES, work.silver), read(CARRIED, work.carried)
    cut = {p: work.cuts[p] for p in unit.partitions if p in work.cuts}
    if unit.step == ALL:
        return fold(db, silver, carried, cut)
    if unit.step == PARTITIONS:
        return fold_partitions(db, silver, carried, cut)
    between = {name: db.files(t, work.between.get(name, ()), unit.where(t)) for name, t in BETWEEN.items()}
    cuts = between["cuts"] if work.between.get("cuts") else None
    if unit.step == GROUPS:
        return fold_groups(db, silver, carried, between["whole"], cuts)
    return fold_places(db, between, cuts, carried)


def _write(folded: Folded, work: Work, writers: dict[str, TableWriter]) -> None:
    for layer, known, frames in (
        ("gold", GOLD, folded.gold),
        ("carried", CARRIED, folded.carried),
        ("between", BETWEEN, folded.between),
    ):
        for name, frame in frames.items():
            target = work.targets.get(f"{layer}.{name}")
            if target is None:  # the table has this batch already
                continue
            rows = frame if layer != "between" else shape(frame, known[name])
            for batch in rows.batches():
                if f"{layer}.{name}" not in writers:
                    writers[f"{layer}.{name}"] = TableWriter(target)
                writers[f"{layer}.{name}"].write(typed(batch, known[name]))
