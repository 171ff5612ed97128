"""A Spark session for the audit. What spark-submit, a configuration file or the environment has set stays as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf
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
SUBMITTED = {"spark.master": "local[*]", "spark.app.name": "pyspark-shell"}
"""What stands in the place of these if nobody has said anything."""
ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR")
"""With one of these, the work may be for other machines, which do not find this one at its loopback address."""
BRIEF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Of a session that lives for one batch of so many rows: half of its time would go into the second compiler."""
BRIEF_ROWS = 100_000
SMALL_ROWS = 400_000
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Of a batch with few rows: what Spark compiles and plans anew for it costs more than it saves."""


def session(settings: Mapping[str, str] | None = None, brief: bool = False) -> SparkSession:
    """The running session, or a new one. `settings` go before what is configured elsewhere. `brief`: for one batch."""
    from pyspark.sql import SparkSession

    from sidecar.audit.source_spark import GroupStateRecords

    said = dict(settings or {})
    running = SparkSession.getActiveSession()
    if running is not None:
        for name, value in {PUSH_DOWN: "true", **said}.items():
            running.conf.set(name, value)
    spark: SparkSession = running or SparkSession.builder.config(conf=_conf(said, brief)).getOrCreate()
    spark.dataSource.register(GroupStateRecords)
    return spark


def _conf(said: Mapping[str, str], brief: bool) -> SparkConf:
    """Of a new session. The JVM must run first: it alone knows what was configured elsewhere."""
    from pyspark import SparkConf, SparkContext

    _find_python()
    if str(said.get("spark.master", "local")).startswith("local") and not any(n in os.environ for n in ELSEWHERE):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    launch = SparkConf(loadDefaults=False)
    for name, value in {**(BRIEF if brief else {}), **said}.items():
        launch.set(name, value)
    SparkContext._ensure_initialized(conf=launch)
    conf = SparkConf()
    for name, value in PREFERRED.items():
        if conf.get(name) in (None, SUBMITTED.get(name)):
            conf.set(name, value)
    conf.set("spark.executorEnv.PYTHONPATH", _path(conf.get("spark.executorEnv.PYTHONPATH", "") or ""))
    for name, value in said.items():
        conf.set(name, value)
    if str(conf.get("spark.master")).startswith("local") and not conf.contains("spark.driver.bindAddress"):
        conf.set("spark.driver.bindAddress", "127.0.0.1")
    return conf


@contextmanager
def suited(spark: SparkSession, rows: int) -> Iterator[bool]:
    """The session's settings suit so many rows meanwhile. Gives whether they are many."""
    if rows > SMALL_ROWS:
        yield True
        return
    before = {name: spark.conf.get(name) for name in SMALL}
    try:
        for name, value in SMALL.items():
            spark.conf.set(name, value)
        yield False
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
