"""A Spark session for the audit. What spark-submit, a configuration file or the environment has set stays as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
"""Where the package `sidecar` lies: a checkout, or the site-packages that it is installed in."""
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark refuses a source that takes filters while this is off, which is its default."""
PREFERRED = {
    PUSH_DOWN: "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.app.name": "group-state-audit",
    # A task whose Python worker dies is tried again; plain local[*] would end the job.
    "spark.master": "local[*,4]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "8",
    # Just this number means no limit. With any other, Spark adds up the bytes of all columns after each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # A window over a large group has its rows in memory until that is short. By default they go to disk by 4,096, each
    # time into a file whose reader takes a megabyte: with half a million rows that alone is more than there is.
    "spark.sql.windowExec.buffer.spill.threshold": "2147483647",
}


BRIEF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Of a session that lives for one small batch: half of its processor time would go into the second compiler."""
SMALL_ROWS = 100_000
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Of a batch with few rows: what Spark compiles and plans anew for it costs more than it saves."""


def session(settings: Mapping[str, str] | None = None, brief: bool = False) -> SparkSession:
    """The running session, or a new one. `settings` go before what is configured elsewhere. `brief`: for one batch."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from sidecar.audit.source_spark import GroupStateRecords

    running = SparkSession.getActiveSession()
    conf = SparkConf()
    said = dict(settings or {})
    if running is None:
        _find_python()
        for name, value in {**PREFERRED, **(BRIEF if brief else {})}.items():
            if not conf.contains(name):
                conf.set(name, value)
        said.setdefault("spark.executorEnv.PYTHONPATH", _path(conf.get("spark.executorEnv.PYTHONPATH", "") or ""))
        for name, value in said.items():
            conf.set(name, value)
        if str(conf.get("spark.master")).startswith("local") and not conf.contains("spark.driver.bindAddress"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            conf.set("spark.driver.bindAddress", "127.0.0.1")
    spark: SparkSession = running or SparkSession.builder.config(conf=conf).getOrCreate()
    if running is not None:
        for name, value in {PUSH_DOWN: "true", **said}.items():
            spark.conf.set(name, value)
    spark.dataSource.register(GroupStateRecords)
    return spark


@contextmanager
def suited(spark: SparkSession, rows: int) -> Iterator[None]:
    """The session's settings suit so many rows meanwhile."""
    if rows > SMALL_ROWS:
        yield
        return
    before = {name: spark.conf.get(name) for name in SMALL}
    try:
        for name, value in SMALL.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.set(name, was) if was is not None else spark.conf.unset(name)


def _find_python() -> None:
    """Workers on this machine take their packages from here; those of a cluster have this package installed."""
    os.environ["PYTHONPATH"] = _path(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _path(before: str) -> str:
    parts = [p for p in before.split(os.pathsep) if p]
    return os.pathsep.join(parts if str(ROOT) in parts else [str(ROOT), *parts])
