"""The audit as a Spark job: it reads the topic, folds each state partition, and gives the tables of docs/audit.md."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.audit.fold import fold_partition
from sidecar.audit.source import GroupStateSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = {
    "intervals": "group_id string, topic string, partition int, member_id string, client_id string, member_epoch int, "
    "state_partition int, from_offset long, from_ms long, from_why string, to_offset long, to_ms long, to_why string",
    "overlaps": "group_id string, topic string, partition int, first string, second string, state_partition int, "
    "offset long, time_ms long",
    "claims": "state_partition int, owner_epoch long, node_id int, address string, offset long, from_ms long, "
    "why string, to_ms long",
    "epochs": "group_id string, epoch int, state string, state_partition int, offset long, time_ms long, why string",
    "stale": "state_partition int, offset long, owner_epoch long, claimed_epoch long",
    "settings": "group_id string, name string, value string, state_partition int, offset long, time_ms long, "
    "why string",
    "stale_claims": "group_id string, member_id string, client_id string, topic string, partitions array<int>, "
    "generation int, holder string, state_partition int, offset long, time_ms long",
    "gaps": "state_partition int, kind string, group_id string, sub_id string, offset long, missing long",
}
TABLES = tuple(SCHEMAS)


@dataclass
class Audit:
    """The rows of each table, with the columns of docs/audit.md. `records` says how many records the topic held."""

    records: int = 0
    intervals: list[dict[str, Any]] = field(default_factory=list)
    overlaps: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    stale: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    stale_claims: list[dict[str, Any]] = field(default_factory=list)


def session(cores: int = 2) -> SparkSession:
    """Start a local session that prints little. The workers find the source and the fold by PYTHONPATH."""
    from pyspark.sql import SparkSession

    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers need the packages of this interpreter, not those of whichever `python3` is first on the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("group-state-audit").master(f"local[{cores}]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.dataSource.register(GroupStateSource)
    return spark


def audit(spark: SparkSession, bootstrap: str, topic: str = "__group_state", out: Path | None = None) -> Audit:
    """Run the audit. With `out`, each table is also written there as Parquet."""
    records = spark.read.format("group_state").option("bootstrap", bootstrap).option("topic", topic).load().cache()
    result = Audit(records=records.count())
    # A state partition is one Spark partition of the source and stays whole; the sort keeps its offsets in order.
    ordered = records.sortWithinPartitions("partition", "offset")
    for table, text in ordered.rdd.mapPartitions(fold_partition).collect():
        getattr(result, table).append(json.loads(text))
    if out is not None:
        for table in TABLES:
            rows = getattr(result, table)
            if rows:
                spark.createDataFrame(rows, SCHEMAS[table]).write.mode("overwrite").parquet(str(out / table))
    records.unpersist()
    for table in TABLES:
        getattr(result, table).sort(key=lambda r: (r.get("from_ms") or r.get("time_ms") or 0, r.get("offset") or 0))
    return result
