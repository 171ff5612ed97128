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
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sidecar.audit.errors import Refused
from sidecar.audit.ingest.same_topic import why_other_topic
from sidecar.audit.ingest.tasks import Span, bronze_of_splits, bronze_once, has_hole, in_doubt, silver_of_files
from sidecar.audit.lake.batch import NOTHING, Batch, Ranges
from sidecar.audit.lake.files import FileInfo, Target, reported
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.spark_tasks import even, numbered, parallelism
from sidecar.audit.lake.storage import folder_at, put_json, read_json
from sidecar.audit.source.kafka import RECORDS_PER_TASK
from sidecar.audit.source.options import limited, starting_offsets
from sidecar.audit.source.uri import Source, open_source
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    before = lake.batch()
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
        return replace(before, new=False)
    position = {**before.position, **{p: end for p, (_, end) in (*lost.items(), *ranges.items())}}
    about = (source.shown, identity or before.identity, lake.incarnation)
    more = any(end < bounds[p][1] for p, (_, end) in ranges.items())
    planned = Batch(before.number + 1, *about, ranges, lost, position, more=more)
    offsets = sum(end - begin for begin, end in ranges.values())
    say(f"batch {planned.number}: reads {offsets:,} offsets of {len(ranges)} partitions")
    begin_batch(spark, source, lake, planned, before)
    say(f"batch {planned.number}: bronze is there")
    return end_batch(spark, lake)


def _begun(lake: Lake) -> bool:
    """Whether bronze has a batch that is not done in all tables of silver."""
    return lake.committed(BRONZE) > lake.last_batch()


def waiting(source_uri: str, lake: Lake, options: Mapping[str, str] | None = None) -> bool:
    """Returns whether `ingest` has offsets to read, a batch to end, lost offsets to record, or a source that is another
    topic. Needs no Spark. Raises AuditError."""
    source = open_source(source_uri, options or {})
    bounds, before = source.bounds(), lake.batch()
    # A comparison may read all of a dump, and `ingest` does it as well: once is enough.
    return (
        _begun(lake)
        or any(plan_ranges(before, bounds, options or {}))
        or bool(why_other_topic(source, lake, before, source.identity(), bounds))
    )


def plan_ranges(
    before: Batch, bounds: Mapping[int, tuple[int, int]], options: Mapping[str, str]
) -> tuple[Ranges, Ranges]:
    """Returns the offsets to read of each partition, and those never to be read: gone already, or before the start."""
    starts = starting_offsets(options, bounds if before.number < 0 else None)
    ranges, lost = {}, {}
    for p, (low, high) in bounds.items():
        have = before.position.get(p)
        begin = max(low, starts.get(p, low) if have is None else have)
        if (have or 0) < begin <= high:  # also of a partition that has no record any more
            lost[p] = (have or 0, begin)
        if begin < high:
            ranges[p] = (begin, high)
    return limited(ranges, int(options.get("max_records", 0))), lost


# ---- a batch --------------------------------------------------------------------------------------------------------
def begin_batch(spark: SparkSession, source: Source, lake: Lake, planned: Batch, before: Batch) -> None:
    """Reads the planned batch into bronze, unless another writer commits it first. `before`: the batch before it."""
    n, ranges = planned.number, planned.ranges
    target, attempt = lake.target(BRONZE, n), secrets.randbits(62)
    splits = source.splits(ranges)
    # The start of a task costs more than a few records, so a task has several splits.
    tasks = max(parallelism(spark), sum(high - low for low, high in ranges.values()) // RECORDS_PER_TASK)
    task = partial(bronze_of_splits, splits, target)
    rows = numbered(spark, len(splits), task, even(len(splits), tasks))
    files, spans = _once(spark, target, reported(rows)[BRONZE.name], sorted(_facts(rows, "spans")))
    new = {} if before.more else {p: r for p, r in ranges.items() if p in before.position}
    lost = {p: (r[0], r[0]) for p, r in new.items() if has_hole([s for s in spans if s[0] == p], r)} | planned.lost
    claims = {p: [c] for p, c in before.claims.items() if p not in lost}  # what was lost may have had later claims
    for p, offset, epoch in sorted(set(map(tuple, _facts(rows, "claims")))):
        claims.setdefault(p, []).append((offset, epoch))
    last, schemas = {p: c[-1] for p, c in claims.items()}, before.schemas | dict(_facts(rows, "schemas"))
    begun = replace(planned, lost=lost, claims=last, schemas=schemas, counts={BRONZE.name: _rows(files)})
    put_json(lake.record(n, attempt), {"batch": asdict(begun), "claims": claims})
    lake.commit(target, files, n, attempt)


def _facts(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Returns what tasks have reported under this name."""
    return [fact for row in rows for fact in row.get(name, ())]


def end_batch(spark: SparkSession, lake: Lake) -> Batch:
    """Makes the silver that bronze's last batch still lacks, and records the batch as done."""
    n, attempt = lake.last(BRONZE)
    if lake.last_batch() >= n:  # another writer was faster
        return lake.batch()
    known = {} if attempt is None else read_json(lake.record(n, attempt))
    if "batch" not in known:
        raise Refused(f"batch {n} of {lake.root} was begun by another version of this program: end it with that one")
    begun = msgspec.convert(known["batch"], Batch, strict=False)
    claims = msgspec.convert(known["claims"], dict[int, list[tuple[int, int]]], strict=False)
    counts = _silver(spark, lake, begun, claims)
    done = replace(begun, counts=counts, done_ms=int(time.time() * 1000))
    if lake.last_batch() < n:
        put_json(lake.record(n), asdict(done))
    return done


def _once(
    spark: SparkSession, target: Target, files: list[FileInfo], spans: Sequence[Span]
) -> tuple[list[FileInfo], list[Span]]:
    """Returns the batch's files and spans, after rewriting partitions that may have a record twice."""
    partitions = in_doubt(spans)
    parts = [[f for f in files if dict(f.partition)["state_partition"] == str(p)] for p in partitions]
    anew = numbered(spark, len(parts), partial(bronze_once, parts, target))
    old = {f.path for part in parts for f in part}
    for path in old:
        (folder_at(target.folder) / path).unlink(missing_ok=True)
    kept = [f for f in files if f.path not in old] + reported(anew)[BRONZE.name]
    return kept, [s for s in spans if s[0] not in partitions] + sorted(_facts(anew, "spans"))


def _silver(
    spark: SparkSession, lake: Lake, begun: Batch, claims: Mapping[int, list[tuple[int, int]]]
) -> dict[str, int]:
    """Makes silver of this batch's bronze. Returns the number of rows in each table. Raises Refused."""
    n, bronze = begun.number, lake.files(BRONZE, begun.number)
    counts = {BRONZE.name: _rows(bronze)}
    _check_rows(lake, begun, "bronze", counts[BRONZE.name])
    targets = {name: lake.target(t, n) for name, t in SILVER_TABLES.items() if lake.committed(t) < n}
    if targets:
        parts = _parts(bronze, parallelism(spark))
        task = partial(silver_of_files, parts, targets, begun.schemas, claims)
        files = reported(numbered(spark, len(parts), task))
        for name, target in targets.items():
            lake.commit(target, files[name], n)
    for name, table in SILVER_TABLES.items():
        counts[name] = _rows(lake.files(table, n))
    _check_rows(lake, begun, "silver", sum(counts.values()) - counts[BRONZE.name])
    return counts


def _rows(files: Iterable[FileInfo]) -> int:
    return sum(f.rows for f in files)


def _check_rows(lake: Lake, begun: Batch, layer: str, rows: int) -> None:
    """Checks that a layer still has the batch's files under its names. Maintenance merges them only after another run
    has ended the batch. Raises Refused."""
    if rows != begun.records and lake.last_batch() < begun.number:
        raise Refused(f"{rewritten(lake, begun.number, layer, rows, begun.records)} {refill(lake)}")


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
