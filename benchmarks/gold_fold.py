"""How long the gold fold takes, batch by batch, from Parquet to Parquet, on generated records of groups that rebalance.

    python benchmarks/gold_fold.py FOLDER --records 10000 --batches 3

A batch goes on from what the one before left. `cpu` is the time of all threads of Spark, and says more than the clock
on a machine that has other work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.fold import fold
from sidecar.audit.layers import SILVER_TABLES
from tests.audit.gold.rows import Log

PARTITIONS = 8
MEMBERS = 8


def rebalance(log: Log, group: str, n: int) -> None:
    """A member comes, or one goes; all others give a partition up and get one."""
    members = [f"m{i}" for i in range(MEMBERS) if i != n % MEMBERS]
    gone = f"m{n % MEMBERS}"
    if ("member", group, gone) in log.revisions:
        log.leave(group, gone)
    for m in members:
        if ("member", group, m) not in log.revisions:
            log.member(group, m)
    held = {m: list(range(i * 4, i * 4 + 4)) for i, m in enumerate(members)}
    log.group(group, n + 1)
    log.target(group, n + 1, **held)
    for m in members:
        log.current(group, m, n + 1, [], held[m])
    for m in members:
        log.current(group, m, n + 1, held[m])


def generations(log: Log, group: str, n: int) -> None:
    members = [f"m{i}" for i in range(MEMBERS)]
    log.classic(group, "PreparingRebalance", n, n if n else -1)
    for m in members:
        log.joins(group, m)
    log.classic(group, "CompletingRebalance", n + 1, n if n else -1)
    for i, m in enumerate(members):
        log.assign(group, m, n + 1, [(i + n) % MEMBERS])
    log.classic(group, "Stable", n + 1, n + 1)


def written(folder: Path, records: int, batches: int, classic: bool) -> None:
    """All batches, by table."""
    logs = [Log(p) for p in range(PARTITIONS)]
    for log in logs:
        log.claim(1)
    n = 0
    for batch in range(batches):
        found: dict[str, list[dict[str, object]]] = {name: [] for name in SILVER_TABLES}
        made = part = 0
        while made < records:
            log = logs[n % PARTITIONS]
            for g in range(20):
                (generations if classic and g % 4 == 0 else rebalance)(log, f"g{log.partition}-{g}", n // PARTITIONS)
            for row in log.rows:
                found[row["table"]].append(row)
            made += len(log.rows)
            log.forget()
            n += 1
            if sum(map(len, found.values())) > 50_000 or made >= records:
                for name, rows in found.items():
                    if rows:
                        path = folder / f"{batch}" / name
                        path.mkdir(parents=True, exist_ok=True)
                        pq.write_table(pa.Table.from_pylist(rows, _schema(name)), path / f"{part}.parquet")
                        rows.clear()
                part += 1


def _schema(name: str) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type) for c in SILVER_TABLES[name].columns])


def tables(spark: SparkSession, folder: Path) -> Iterator[tuple[str, DataFrame]]:
    """Those that have rows."""
    for path in sorted(folder.glob("*")):
        if any(pq.read_metadata(f).num_rows for f in path.glob("*.parquet")):
            known = SILVER_TABLES if folder.parent.name == "silver" else CARRIED
            ddl = known[path.name].ddl
            yield path.name, spark.read.schema(ddl).parquet(str(path))


def measured(spark: SparkSession, folder: Path, batch: int, threads: int) -> None:
    first = _jobs(spark)
    java = next(p for p in psutil.Process().children(recursive=True) if "java" in p.name())
    cpu, begin = sum(java.cpu_times()[:2]), time.monotonic()
    made = fold(
        dict(tables(spark, folder / "silver" / f"{batch}")), dict(tables(spark, folder / "carried" / f"{batch}"))
    )
    folded = time.monotonic() - begin
    between = _jobs(spark)
    said = (("added", made.added), ("open", made.open), ("carried", made.carried))
    writes = [
        (df, str(folder / ("carried" if what == "carried" else what) / f"{batch + 1}" / name))
        for what, frames in said
        for name, df in frames.items()
    ]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda w: w[0].coalesce(1).write.mode("overwrite").parquet(w[1]), writes))
    now = _jobs(spark)
    print(
        f"batch {batch}: {time.monotonic() - begin:.1f} s, of which"
        f" {folded:.1f} s and {between - first} jobs in fold();"
        f" cpu {sum(java.cpu_times()[:2]) - cpu:.1f} s; {now - first} jobs, {_stages(spark, first, now)} stages;"
        f" load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def _stages(spark: SparkSession, first: int, end: int) -> int:
    """That ran; those whose result was there already did not."""
    found = filter(None, map(spark.sparkContext.statusTracker().getJobInfo, range(first, end)))
    return len({s for job in found for s in job.stageIds})


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("folder", type=Path)
    args.add_argument("--records", type=int, default=10_000)
    args.add_argument("--batches", type=int, default=3)
    args.add_argument("--classic", action="store_true")
    args.add_argument("--threads", type=int, default=1, help="how many tables are written at a time")
    args.add_argument("--conf", action="append", default=[])
    said = args.parse_args()
    if not (said.folder / "silver").exists():
        written(said.folder / "silver", said.records, said.batches, said.classic)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        **dict(c.split("=", 1) for c in said.conf),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for batch in range(said.batches):
        measured(spark, said.folder, batch, said.threads)
    for name in ("added", "open", "carried"):
        shutil.rmtree(said.folder / name, ignore_errors=True)


if __name__ == "__main__":
    main()
