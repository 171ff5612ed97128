"""Spark session of the audit. Its defaults replace no setting of spark-submit, configuration files or environment."""

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

ROOT = Path(__file__).resolve().parents[3]
"""Folder of the package `sidecar`: a checkout, or the site-packages in which it is installed."""
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark refuses a source that takes filters while this is off, which is its default."""
PREFERRED = {
    PUSH_DOWN: "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.app.name": "group-state-audit",
    # A task whose Python worker dies is tried again; plain local[*] would end the job.
    "spark.master": "local[*,4]",
    "spark.ui.enabled": "false",
    # Exactly this number means no limit. With any other, Spark sums up the bytes of all columns after each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
SUBMITTED = {"spark.master": "local[*]", "spark.app.name": "pyspark-shell"}
"""Spark's defaults, which PREFERRED replaces; any other value was set on purpose."""
ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR")
"""Environment variables with which executors may be on other machines, which cannot reach a loopback address."""
LOGGED = Path(__file__).with_name("log4j2.properties")
LAUNCHED = {
    # Takes effect at the launch of the JVM, which otherwise treats this process as a shell and shows progress.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOGGED.as_uri()}",
}
"""Settings for the launch of the JVM. Records never go through it, it only hands out tasks: its second compiler would
take processor time from them."""


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the running session, or a new one; with SPARK_REMOTE set, a session of that Spark Connect server.
    `settings` override what is configured elsewhere."""
    from pyspark.sql import SparkSession

    from sidecar.audit.source.records import GroupStateRecords

    overrides = dict(settings or {})
    running = SparkSession.getActiveSession()
    if "SPARK_REMOTE" in os.environ:
        _find_python()  # for a server that is started here
        running = SparkSession.builder.getOrCreate()
    if running is not None:
        for name, value in {PUSH_DOWN: "true", **overrides}.items():
            running.conf.set(name, value)
    spark: SparkSession = running or SparkSession.builder.config(conf=_conf(overrides)).getOrCreate()
    spark.dataSource.register(GroupStateRecords)
    return spark


def _conf(overrides: Mapping[str, str]) -> SparkConf:
    """Returns the configuration of a new session. Starts the JVM first: only it knows what is configured elsewhere."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    _find_python()
    if str(overrides.get("spark.master", "local")).startswith("local") and not any(n in os.environ for n in ELSEWHERE):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    launch = SparkConf(loadDefaults=False)
    for name, value in {**LAUNCHED, **overrides}.items():
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
    for name, value in overrides.items():
        conf.set(name, value)
    if str(conf.get("spark.master")).startswith("local") and not conf.contains("spark.driver.bindAddress"):
        conf.set("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _find_python() -> None:
    """Sets Python and its path for workers on this machine; a cluster's workers have this package installed."""
    os.environ["PYTHONPATH"] = _path(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _path(before: str) -> str:
    parts = [p for p in before.split(os.pathsep) if p]
    return os.pathsep.join(parts if str(ROOT) in parts else [str(ROOT), *parts])
