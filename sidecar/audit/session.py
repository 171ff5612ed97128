"""A Spark session for the audit. What spark-submit, a configuration file or the environment has set stays as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
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
}


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The running session, or a new one. `settings` go before what is configured elsewhere."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from sidecar.audit.source_spark import GroupStateRecords

    running = SparkSession.getActiveSession()
    conf = SparkConf()
    said = dict(settings or {})
    if running is None:
        _find_python()
        for name, value in PREFERRED.items():
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


def _find_python() -> None:
    """Workers on this machine take their packages from here; those of a cluster have this package installed."""
    os.environ["PYTHONPATH"] = _path(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _path(before: str) -> str:
    parts = [p for p in before.split(os.pathsep) if p]
    return os.pathsep.join(parts if str(ROOT) in parts else [str(ROOT), *parts])
