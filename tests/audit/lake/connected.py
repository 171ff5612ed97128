"""A notebook's process on Spark Connect: `SPARK_REMOTE=local[2] python -m tests.audit.lake.connected SOURCE FOLDER`.

It fills the lake FOLDER/lake, reads a table of that by its name, makes gold of the same records as DataFrames, and
silver of them with a stream.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pyspark.sql.connect.session as connect

from sidecar.audit.ask.catalog import register
from sidecar.audit.dataframes import silver
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit
from sidecar.audit.run.session import session
from sidecar.audit.source.records import GroupStateRecords
from tests.audit.lake.making import records
from tests.audit.lake.test_dataframes import gold_frames


def main(source: str, folder: Path) -> None:
    spark = session()
    assert isinstance(spark, connect.SparkSession)
    audit(spark, source, Lake.at(folder / "lake"))
    register(spark, str(folder / "lake"))
    by_name = spark.table("group_state.intervals").toArrow().to_pylist()
    (folder / "intervals.pickle").write_bytes(pickle.dumps(by_name))
    (folder / "gold.pickle").write_bytes(pickle.dumps(gold_frames(records(spark, source))))
    rows = spark.readStream.format(GroupStateRecords.name()).option("uri", source).load()
    writer = silver(rows).writeStream.format("parquet").option("path", str(folder / "rows"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
