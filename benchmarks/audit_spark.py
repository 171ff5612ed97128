"""Spark's own way to read the state topic, all in the JVM: spark-avro's `from_avro` on the bytes of the values, into
Parquet.

    python -m benchmarks.audit_spark parquet FOLDER OUT
    python -m benchmarks.audit_spark kafka HOST:PORT OUT

From Parquet it does what the audit does between bronze and silver: the values of all kinds are decoded and written with
the columns of their keys. It does less than that: no fences, no assignments of classic groups, no base64, and a damaged
value ends it. From Kafka it reads the topic with Spark's Kafka connector and decodes the keys, too, which is what the
audit does up to silver. Everything is written in one pass, one column for each schema, in folders by schema.

The packages have the version of the PySpark that runs this and come from Maven by `spark.jars.packages`. The last line
is JSON; exit code 3 if the packages cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from fastavro.schema import fingerprint, to_parsing_canonical_form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 2
SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
KEY = (SCHEMAS / "group_state_key.avsc").read_text()
UNRESOLVED = 3


def packages() -> list[str]:
    core = next((Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar"))
    match = re.match(r"spark-core_([\d.]+)-(.+)\.jar", core.name)
    assert match is not None, core.name
    return [f"org.apache.spark:{a}_{match[1]}:{match[2]}" for a in ("spark-avro", "spark-sql-kafka-0-10")]


def values() -> dict[str, tuple[str, str]]:
    """Fingerprint as it stands in a value (hex) -> name and text of each published schema of values."""
    found = {}
    for path in sorted(SCHEMAS.glob("*-v*.avsc")):
        text = path.read_text()
        found[fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO")] = (path.stem, text)
    return found


def started() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": "local[*]",
        "spark.jars.packages": ",".join(packages()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rows_of(spark: SparkSession, source: str, place: str) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    epoch = "cast(get(transform(filter(headers, h -> h.{k} = 'owner_epoch'), h -> cast(h.value as string)), 0) as long)"
    if source == "parquet":
        read = spark.read.option("basePath", place).option("pathGlobFilter", "*.parquet").parquet(place)
        return read.selectExpr(
            "state_partition",
            "offset",
            "log_time",
            "kind",
            "group_id",
            "sub_id",
            "value",
            "fingerprint",
            f"{epoch.format(k='name')} as owner_epoch",
        )
    options = {"kafka.bootstrap.servers": place, "subscribe": "__group_state", "startingOffsets": "earliest"}
    read = spark.read.format("kafka").options(**options, includeHeaders="true").load()
    return read.withColumn("k", from_avro(f.col("key"), KEY)).selectExpr(
        "partition as state_partition",
        "offset",
        "timestamp as log_time",
        "k.kind",
        "k.group_id",
        "k.sub_id",
        "value",
        "case when k.kind <> 'schema' then lower(hex(substring(value, 3, 8))) end as fingerprint",
        f"{epoch.format(k='key')} as owner_epoch",
    )


def decoded(rows: DataFrame) -> DataFrame:
    """The values that were decoded, each in the column of its schema."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    known = values()
    body = f.expr("substring(value, 11)")
    columns: list[Any] = [
        f.when(f.col("fingerprint") == print_, from_avro(body, text)).alias(name.replace("-", "_"))
        for print_, (name, text) in known.items()
    ]
    which = f.create_map(*[f.lit(x) for print_, (name, _) in known.items() for x in (print_, name)])
    table = f.coalesce(which[f.col("fingerprint")], f.lit("none")).alias("table")
    plain = ["state_partition", "offset", "log_time", "kind", "group_id", "sub_id", "owner_epoch"]
    return rows.select(*plain, table, *columns)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", choices=["parquet", "kafka"])
    p.add_argument("place")
    p.add_argument("out", type=Path)
    args = p.parse_args()
    try:
        spark = started()
    except Exception as exc:  # noqa: BLE001 - whatever keeps Spark from starting with them
        print(f"Spark does not start with {', '.join(packages())}: {type(exc).__name__}", file=sys.stderr)
        sys.exit(UNRESOLVED)
    seconds = []
    for _ in range(ROUNDS):
        shutil.rmtree(args.out, ignore_errors=True)
        begin = time.monotonic()
        made = decoded(rows_of(spark, args.source, args.place))
        made.write.partitionBy("table").parquet(str(args.out))
        seconds.append(round(time.monotonic() - begin, 2))
        print(f"from_avro: {seconds[-1]} s", file=sys.stderr, flush=True)
    counts = spark.read.parquet(str(args.out)).groupBy("table").count().collect()
    spark.stop()
    shutil.rmtree(args.out, ignore_errors=True)
    figures = {"packages": packages(), "seconds": seconds, "rows": {r["table"]: r["count"] for r in counts}}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
