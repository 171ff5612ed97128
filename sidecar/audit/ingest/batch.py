"""Ingestion of records into the lake, batch by batch, each record exactly once.

An attempt at a batch writes what it has read to `_batches/N.ATTEMPT.json`. The transaction that makes its bronze
visible names the attempt, so that transaction alone decides, also between two writers. A writer that dies before it
has changed nothing; if one dies after it, the next writer ends the batch. Silver is made of the committed bronze, so
it is always the same, even if compaction has removed records from the topic in between. Each table has the batch's
number in its log, and takes no batch twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.errors import Refused
from sidecar.audit.ingest.plan import NOTHING, Batch, Plan, plan_ranges
from sidecar.audit.ingest.same_topic import why_other_topic
from sidecar.audit.ingest.tasks import bronze_of_splits, bronze_once, in_doubt, silver_of_files
from sidecar.audit.lake.files import FileInfo, Target, dataset, reported
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.spark_tasks import even, numbered, parallelism
from sidecar.audit.lake.storage import folder_at, put_json, read_json
from sidecar.audit.source.kafka import RECORDS_PER_TASK
from sidecar.audit.source.options import Ranges
from sidecar.audit.source.uri import Source, open_source
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def recorded(lake: Lake, batch: int) -> Batch:
    """Returns the finished batch of that number; NOTHING if there is none."""
    known = lake.batch(batch)
    return NOTHING if known is None else msgspec.convert(known, Batch, strict=False)


def last_batch(lake: Lake) -> Batch:
    """Returns the last finished batch; NOTHING if there is none."""
    return recorded(lake, lake.last_batch())


def ingest(
    spark: SparkSession,
    source_uri: str,
    lake: Lake,
    options: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Batch:
    """Reads new records into the lake, as one batch. If a batch was begun and not ended, only ends that one. Raises
    AuditError.

    Options: `kafka.*`, `topic`, `records_per_task`; `max_records`: of one batch, about; `starting_offsets`: earliest,
    or {"partition": offset}; `new_incarnation` = true: if the topic was re-created, begin anew beside the old tables.
    """
    options = options or {}
    source = open_source(source_uri, options)
    lake.setup([BRONZE, *SILVER_TABLES.values()])
    if _begun(lake):
        return end_batch(spark, lake)
    before = last_batch(lake)
    bounds, identity = source.bounds(), source.identity()
    why = why_other_topic(source, lake, before, identity, bounds)
    if why and options.get("new_incarnation", "").lower() == "true":
        lake = lake.next_incarnation()
        lake.setup([BRONZE, *SILVER_TABLES.values()])
        before = NOTHING
    elif why:
        raise Refused(
            f"{why} Its offsets mean other records now. To begin anew, beside what there is, set the option "
            "new_incarnation (--new-incarnation); nothing of the old one is lost."
        )
    ranges, lost = plan_ranges(before, bounds, options)
    if not ranges and not lost:
        before.new = False
        return before
    more = any(end < bounds[p][1] for p, (_, end) in ranges.items())
    plan = Plan(before.number + 1, source.shown, identity, ranges, lost, more)
    offsets = sum(end - begin for begin, end in plan.ranges.values())
    say(f"batch {plan.batch}: reads {offsets:,} offsets of {len(plan.ranges)} partitions")
    begin_batch(spark, source, lake, plan)
    say(f"batch {plan.batch}: bronze is there")
    return end_batch(spark, lake)


def _begun(lake: Lake) -> bool:
    """Whether bronze has a batch that is not done in all tables of silver."""
    return lake.committed(BRONZE) > lake.last_batch()


def waiting(source_uri: str, lake: Lake, options: Mapping[str, str] | None = None) -> int:
    """Returns how many offsets `ingest` would read now. At least 1 if it has a batch to end, lost offsets to record, or
    a source that is another topic. Needs no Spark. Raises AuditError."""
    source = open_source(source_uri, options or {})
    bounds, before = source.bounds(), last_batch(lake)
    if _begun(lake):
        return max(1, sum(high - low for low, high in bounds.values()))
    ranges, lost = plan_ranges(before, bounds, options or {})
    new = max(sum(high - low for low, high in ranges.values()), len(lost))
    # A comparison may read all of a dump, and `ingest` does it as well: once is enough.
    return new or int(bool(why_other_topic(source, lake, before, source.identity(), bounds)))


# ---- a batch --------------------------------------------------------------------------------------------------------
def begin_batch(spark: SparkSession, source: Source, lake: Lake, plan: Plan) -> None:
    """Reads the planned batch into bronze, unless another writer commits it first."""
    n, before = plan.batch, last_batch(lake)
    target, attempt = lake.target(BRONZE, n), secrets.randbits(62)
    splits = source.splits(plan.ranges)
    # The start of a task costs more than a few records, so a task has several splits.
    tasks = max(parallelism(spark), sum(high - low for low, high in plan.ranges.values()) // RECORDS_PER_TASK)
    task = partial(bronze_of_splits, splits, target, before.position)
    rows = numbered(spark, len(splits), task, even(len(splits), tasks))
    facts = [r["facts"] for r in rows if "facts" in r]
    files = _once(spark, target, reported(rows)[BRONZE.name], in_doubt(facts))
    put_json(lake.record(n, attempt), {"plan": asdict(plan), "records": _rows(files), **_merged(facts)})
    lake.commit(target, files, n, attempt)


def end_batch(spark: SparkSession, lake: Lake) -> Batch:
    """Makes the silver that bronze's last batch still lacks, and records the batch as done."""
    n, attempt = lake.last(BRONZE)
    if lake.last_batch() >= n:  # another writer was faster
        return last_batch(lake)
    before = recorded(lake, n - 1)
    if attempt is None:
        raise Refused(f"batch {n} of {lake.root} was begun by another version of this program: end it with that one")
    known = read_json(lake.record(n, attempt))
    plan = msgspec.convert(known["plan"], Plan, strict=False)
    lost = {**({} if before.more else _overtaken(lake, before, plan)), **plan.lost}
    claims = {p: [c] for p, c in before.claims.items() if p not in lost}  # what was lost may have had later claims
    for p, offset, epoch in sorted(known["claims"]):
        claims.setdefault(p, []).append((offset, epoch))
    schemas = {**before.schemas, **known["schemas"]}
    counts = _silver(spark, lake, n, known.get("records"), schemas, claims)
    position = {**before.position, **{p: b for p, (_, b) in (*plan.lost.items(), *plan.ranges.items())}}
    for p, at in known["seen"]:
        position[p] = max(at, position.get(p, 0))
    last = {p: c[-1] for p, c in claims.items()}
    now = int(time.time() * 1000)
    about = (plan.source, plan.identity or before.identity, lake.incarnation, plan.ranges, lost)
    done = Batch(n, *about, position, counts, last, schemas, now, plan.more)
    if lake.last_batch() < n:
        put_json(lake.record(n), asdict(done))
    return done


def _overtaken(lake: Lake, before: Batch, plan: Plan) -> Ranges:
    """Returns the begins of ranges in which two offsets in a row have no record; one alone is the end of a transaction.
    The batch `before` had read all that was there, so compaction has overtaken it, and may have left nothing of a
    member that left, nor of a claim."""
    files: dict[int, list[FileInfo]] = {}
    for f in lake.files(BRONZE, plan.batch):
        files.setdefault(int(dict(f.partition)["state_partition"] or 0), []).append(f)
    new = {p: r for p, r in plan.ranges.items() if p in before.position}
    return {p: (begin, begin) for p, (begin, end) in new.items() if _has_hole(lake, files.get(p, []), begin, end)}


def _has_hole(lake: Lake, files: Sequence[FileInfo], begin: int, end: int) -> bool:
    if sum(f.rows for f in files) == end - begin:
        return False
    read = dataset(BRONZE, [f.path for f in files], str(lake.folder(BRONZE))).to_table(columns=["offset"])
    at = pa.concat_arrays([pa.array([begin - 1]), read.column("offset").combine_chunks().sort(), pa.array([end])])
    return bool(pc.max(pc.pairwise_diff(at)).as_py() > 2)


def _once(spark: SparkSession, target: Target, files: list[FileInfo], partitions: Sequence[int]) -> list[FileInfo]:
    """Returns the batch's files, after rewriting those of these state partitions with each record once."""
    parts = [[f for f in files if dict(f.partition)["state_partition"] == str(p)] for p in partitions]
    anew = numbered(spark, len(parts), partial(bronze_once, parts, target))
    old = {f.path for part in parts for f in part}
    for path in old:
        (folder_at(target.folder) / path).unlink(missing_ok=True)
    return [f for f in files if f.path not in old] + reported(anew)[BRONZE.name]


def _merged(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a batch's record keeps of the tasks' facts. `seen`: next offset of each partition with a record."""
    claims = {tuple(claim) for one in facts for claim in one["claims"]}
    schemas = {name: text for one in facts for name, text in one["schemas"].items()}
    ends = sorted((p, last + 1) for one in facts for p, _, last, _ in one["spans"])
    return {"claims": sorted(claims), "schemas": schemas, "seen": sorted(dict(ends).items())}


def _silver(
    spark: SparkSession,
    lake: Lake,
    n: int,
    records: int | None,
    schemas: Mapping[str, str],
    claims: Mapping[int, list[tuple[int, int]]],
) -> dict[str, int]:
    """Makes silver of this batch's bronze. Returns the number of rows in each table. `records`: how many bronze must
    have; None if an earlier version wrote it. Raises Refused."""
    bronze = lake.files(BRONZE, n)
    counts = {BRONZE.name: _rows(bronze)}
    _check_rows(lake, n, "bronze", counts[BRONZE.name], records)
    targets = {name: lake.target(t, n) for name, t in SILVER_TABLES.items() if lake.committed(t) < n}
    if targets:
        parts = _parts(bronze, parallelism(spark))
        task = partial(silver_of_files, parts, targets, schemas, claims)
        files = reported(numbered(spark, len(parts), task))
        for name, target in targets.items():
            lake.commit(target, files[name], n)
    for name, table in SILVER_TABLES.items():
        counts[name] = _rows(lake.files(table, n))
    _check_rows(lake, n, "silver", sum(counts.values()) - counts[BRONZE.name], records)
    return counts


def _rows(files: Iterable[FileInfo]) -> int:
    return sum(f.rows for f in files)


def _check_rows(lake: Lake, n: int, layer: str, rows: int, wanted: int | None) -> None:
    """Checks that a layer still has the batch's files under its names. Maintenance merges them only after another run
    has ended the batch. Raises Refused."""
    if wanted not in (None, rows) and lake.last_batch() < n:
        raise Refused(f"{rewritten(lake, n, layer, rows, wanted or 0)} {refill(lake)}")


def rewritten(lake: Lake, n: int, what: str, rows: int, wanted: int) -> str:
    """Returns what is wrong if files of a batch cannot be found by their names."""
    return (
        f"{what} of {lake.root} has {rows:,} rows of batch {n}, and {wanted:,} were written: another program has"
        " compacted or changed it, before the batch was at an end."
    )


def refill(lake: Lake) -> str:
    """Returns what to do if silver or gold cannot be made any more."""
    return f"Fill another lake from this one: `sidecar audit run --from delta://{lake.base} --lake FOLDER`."


def _parts(files: Sequence[FileInfo], tasks: int) -> list[list[FileInfo]]:
    """Returns the files of each task, sorted by partition. A task takes files until it has rows for one good file."""
    most = min(RECORDS_PER_TASK, max(1, _rows(files) // max(1, tasks)))
    parts: list[list[FileInfo]] = []
    rows = most
    for f in sorted(files, key=lambda f: (int(dict(f.partition)["state_partition"] or 0), f.path)):
        if rows >= most:
            parts.append([])
            rows = 0
        parts[-1].append(f)
        rows += f.rows
    return parts
