"""An archive of the classes that a Spark driver loads (JDK, class data sharing), made by
`python -m tests.harness.spark_archive`.

A driver that starts with it needs half of the processor time. Without it, or with one of another Java or pyspark, a
driver starts as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sidecar.drill.artifacts import ArtifactError, archive_in, archive_options, cache_dir

OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable with options for the JVM of each spark-submit, pyspark's among them."""
LIMIT_S, KEPT_S = 300.0, 7 * 86_400.0
DRIVE = "drive"


def archive_file() -> Path:
    """Returns the path of the archive for this Java and this pyspark. Raises ArtifactError without a Java."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    jars = Path(found.origin).parent / "jars"
    return archive_in(cache_dir() / "spark", jars, jars.stat().st_mtime_ns)


def use() -> None:
    """Lets the Spark drivers of this run, and of its processes, start with the archive, if there is one."""
    try:
        options = archive_options(archive_file())
    except ArtifactError:
        return
    if options:
        os.environ.setdefault(OPTIONS, " ".join(options))


def make() -> Path:
    """Makes the archive, if there is none, and returns its path. Raises SubprocessError if the driver fails, OSError if
    it leaves no archive."""
    made = archive_file()
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    making = made.with_suffix(".making")
    making.unlink(missing_ok=True)
    # The driver's classpath is part of the archive, so it is started in the way that the tests do it.
    env = {**os.environ, OPTIONS: f"-XX:ArchiveClassesAtExit={making} -Xlog:disable"}
    subprocess.run([sys.executable, __file__, DRIVE], env=env, check=True, timeout=LIMIT_S)
    making.rename(made)
    for other in made.parent.glob("*.jsa"):  # 190 MB each, one for each clone
        if other.stat().st_mtime < time.time() - KEPT_S:
            other.unlink()
    return made


def drive() -> None:
    """Does in one session what most tests do with Spark."""
    from sidecar.audit.run.session import session

    spark = session({"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"})
    rows = spark.range(8).selectExpr("id", "id % 3 as k", "cast(id as string) as s")
    with tempfile.TemporaryDirectory(prefix="sidecar-spark-") as tmp:
        rows.write.parquet(f"{tmp}/rows")
        stored = spark.read.parquet(f"{tmp}/rows")
        stored.createOrReplaceTempView("stored")
        spark.sql("select k, count(*) as n, max(s) as s from stored where id > 1 group by k order by k").collect()
        same = stored.mapInArrow(lambda batches: batches, rows.schema).groupBy("k")
        same.applyInArrow(lambda table: table, rows.schema).toArrow()
        stream = spark.readStream.schema(rows.schema).parquet(f"{tmp}/rows").writeStream
        stream = stream.option("checkpointLocation", f"{tmp}/checkpoint")
        stream = stream.foreachBatch(lambda df, n: df.write.mode("append").parquet(f"{tmp}/copy"))
        stream.trigger(availableNow=True).start().awaitTermination()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(LIMIT_S)  # the archive is written at its end


if __name__ == "__main__":
    if sys.argv[1:] == [DRIVE]:
        drive()
    else:
        try:
            print(f"classes of Spark: {make()}")
        except (OSError, subprocess.SubprocessError) as exc:
            print(f"{exc}\nSpark starts without it, which takes longer.", file=sys.stderr)
