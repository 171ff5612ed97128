"""The whole audit: records into the lake, and from its silver to gold, batch by batch.

Gold follows silver: a batch of gold takes the new rows of one batch of silver, and the carried tables of gold's
previous batch. Carried tables lie beside gold's, in a folder for each batch, and are written before any table of gold
has the batch. So a process that continues after a crash finds the same input, and each table takes a batch once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError

from sidecar.audit.errors import AuditError, Refused
from sidecar.audit.gold.carried import CARRIED, CARRIED_VERSION
from sidecar.audit.gold.tasks import ROWS_PER_TASK, Work, gold_of_units, planned
from sidecar.audit.ingest.batch import ingest, waiting
from sidecar.audit.lake.batch import Batch
from sidecar.audit.lake.files import FileInfo, Target, reported
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.spark_tasks import falling, numbered, parallelism
from sidecar.audit.lake.storage import Folder, put_json, read_json, remove_all
from sidecar.audit.run.gold_input import GoldInput, anew, gold_input
from sidecar.audit.tables.gold import GOLD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
LISTED = "files.json"
FASTER = (CommitFailedError, AuditError, FileNotFoundError)
"""Errors if another writer was faster: Delta's commit conflict, or the previous batch's carried tables are already
removed, as a task or this process finds."""


def audit(
    spark: SparkSession, source: str, lake: Lake, options: Mapping[str, str] | None = None, say: Say = lambda text: None
) -> Batch:
    """Reads new records and brings gold up to date. The returned batch is `new` if either had work to do. Raises
    AuditError."""
    batch = ingest(spark, source, lake, options, say)
    now = Lake.at(lake.base)
    lake = lake if now.incarnation == lake.incarnation else now  # the topic may have been re-created
    if batch.new:
        say(f"batch {batch.number}: {batch.records:,} records of {batch.source}; now its tables are made")
    made = make_gold(spark, lake, say, options)
    return replace(batch, new=batch.new or made > 0)


def to_do(source: str, lake: Lake, options: Mapping[str, str] | None = None) -> bool:
    """Returns whether anything is not up to date. Needs no Spark. Raises AuditError."""
    return waiting(source, lake, options) or lake.done(GOLD.values()) < lake.last_batch()


def make_gold(
    spark: SparkSession, lake: Lake, say: Say = lambda text: None, options: Mapping[str, str] | None = None
) -> int:
    """Brings gold up to silver's last batch. Returns how many batches that took. Options: `rows_per_task`;
    `memory_per_task`, such as 2GB. Raises AuditError."""
    made = 0
    lake.setup(list(GOLD.values()))
    while (n := lake.done(GOLD.values()) + 1) <= lake.last_batch():
        try:
            part = gold_input(lake, n)
            _batch(spark, lake, part, options or {})
        except FASTER:
            if lake.done(GOLD.values()) < n:
                raise
            continue
        made += 1
        say(f"batch {part.batch}: gold is up to date")
    return made


def _left(lake: Lake, batch: int) -> Folder:
    return lake.root / "_carried" / f"{batch:08d}"


def _batch(spark: SparkSession, lake: Lake, part: GoldInput, options: Mapping[str, str]) -> None:
    n, silver = part.batch, part.silver
    first = lake.done(GOLD.values()) < 0
    carried = {} if first else _carried(lake, n - 1)
    left = _left(lake, n)
    # A listing of another version may be there, and another run may do the same: its files stay, as it may name them.
    anew = first and all(lake.committed(table) < 0 for table in GOLD.values())
    gold = [lake.target(table, n) for table in GOLD.values() if lake.committed(table) < n]
    targets = {f"gold.{t.table.name}": t for t in gold}
    targets |= {f"carried.{name}": Target(t, str(left / "carried" / name), "") for name, t in CARRIED.items()}
    work = Work(
        {name: [f.path for f in files] for name, files in silver.items() if files},
        {name: paths for name, (paths, _) in carried.items()},
        targets,
        options.get("memory_per_task", ""),
        cuts=part.cuts,
    )
    rows = sum(f.rows for files in silver.values() for f in files) + sum(count for _, count in carried.values())
    files = _folded(spark, work, _spread(lake, n, rows), int(options.get("rows_per_task", ROWS_PER_TASK)))
    if anew or not (left / LISTED).is_file():
        # A task or an attempt that died may have left others.
        named = {name: [[f"carried/{name}/{f.path}", f.rows] for f in files[f"carried.{name}"]] for name in CARRIED}
        put_json(left / LISTED, {"version": CARRIED_VERSION, "files": named})
    for target in gold:
        lake.commit(target, files[f"gold.{target.table.name}"], n)
    for old in (lake.root / "_carried").glob("????????"):
        if int(old.name) < n:
            remove_all(old)


def _folded(spark: SparkSession, work: Work, rows: Mapping[int, int], most: int) -> dict[str, list[FileInfo]]:
    """Runs gold's tasks for a batch. Returns the files that they wrote, by layer and table."""
    at_once = parallelism(spark)
    units = planned(rows, at_once, most)
    task = partial(gold_of_units, units, work)
    # The units of a task share their files, so a few tasks have all of them.
    return reported(numbered(spark, len(units), task, falling([u.rows for u in units], at_once)))


def _spread(lake: Lake, n: int, rows: int) -> dict[int, int]:
    """Returns about how many of the rows each state partition has: in proportion to its offsets in the lake, where new
    ones count eleven times."""
    now, before = lake.batch(n).position, lake.batch(n - 1).position
    weights = {p: at + 10 * (at - before.get(p, 0)) for p, at in now.items()}
    total = sum(weights.values())
    return {p: rows * w // total for p, w in weights.items()} if total else {}


def _carried(lake: Lake, n: int) -> dict[str, tuple[list[str], int]]:
    """Returns files and number of rows of each carried table that has rows. Raises AuditError."""
    folder = _left(lake, n)
    listed = folder / LISTED
    listing = read_json(listed) if listed.is_file() else {}
    if listing.get("version") != CARRIED_VERSION:
        raise Refused(f"gold in {lake.root} was made by another version of this program. {anew(lake)}")
    return {
        name: ([str(folder / path) for path, _ in files], sum(rows for _, rows in files))
        for name, files in listing["files"].items()
        if files
    }
