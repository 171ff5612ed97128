"""A Spark session for the audit. What spark-submit, a configuration file or the environment has set stays as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.audit.errors import AuditError

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
    # Just this number means no limit. With any other, Spark adds up the bytes of all columns after each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
SUBMITTED = {"spark.master": "local[*]", "spark.app.name": "pyspark-shell"}
"""What stands in the place of these if nobody has said anything."""
ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR")
"""With one of these, the work may be for other machines, which do not find this one at its loopback address."""
LOGGED = Path(__file__).with_name("log4j2.properties")
LAUNCHED = {
    # It counts when the JVM is launched, which else takes this process for a shell and shows its progress.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOGGED.as_uri()}",
}
"""The records never go through the JVM, which only hands out tasks: its second compiler would take time from them."""


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The running session, or a new one; of the Spark Connect server that SPARK_REMOTE names, if it names one.
    `settings` go before what is configured elsewhere."""
    from pyspark.sql import SparkSession

    from sidecar.audit.source_spark import GroupStateRecords

    said = dict(settings or {})
    running = SparkSession.getActiveSession()
    if "SPARK_REMOTE" in os.environ:
        _find_python()  # of a server that is started here
        running = SparkSession.builder.getOrCreate()
    if running is not None:
        for name, value in {PUSH_DOWN: "true", **said}.items():
            running.conf.set(name, value)
    spark: SparkSession = running or SparkSession.builder.config(conf=_conf(said)).getOrCreate()
    spark.dataSource.register(GroupStateRecords)
    return spark


def _conf(said: Mapping[str, str]) -> SparkConf:
    """Of a new session. The JVM must run first: it alone knows what was configured elsewhere."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    _find_python()
    if str(said.get("spark.master", "local")).startswith("local") and not any(n in os.environ for n in ELSEWHERE):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    launch = SparkConf(loadDefaults=False)
    for name, value in {**LAUNCHED, **said}.items():
        launch.set(name, value)
    try:
        SparkContext._ensure_initialized(conf=launch)
    except (PySparkRuntimeError, OSError) as exc:
        raise AuditError(f"Spark did not start ({exc}): it needs Java 17 or later in PATH or JAVA_HOME") from exc
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


def _find_python() -> None:
    """Workers on this machine take their packages from here; those of a cluster have this package installed."""
    os.environ["PYTHONPATH"] = _path(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _path(before: str) -> str:
    parts = [p for p in before.split(os.pathsep) if p]
    return os.pathsep.join(parts if str(ROOT) in parts else [str(ROOT), *parts])
