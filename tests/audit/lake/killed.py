"""A process that audits into a lake and may be killed at any moment:
`python -m tests.audit.lake.killed SOURCE LAKE MOST`.

It says "ready" once Spark runs, and a line for each batch that is done: its number, and how many tasks have failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit, to_do
from sidecar.audit.run.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = 2_000
"""More than there are in a test."""
SETTINGS = {"spark.master": "local[2,4]", "spark.driver.memory": "512m", "spark.log.level": "OFF"}


def failed(spark: SparkSession) -> int:
    """Tasks, of all that were tried."""
    tracker = spark.sparkContext.statusTracker()
    found = (tracker.getStageInfo(n) for n in range(STAGES))
    return sum(stage.numFailedTasks for stage in found if stage is not None)


def main(source: str, folder: str, most: str) -> None:
    spark = session({**SETTINGS, "spark.default.parallelism": "2"})
    print("ready", flush=True)
    options, lake = {"max_records": most}, Lake.at(folder)
    while to_do(source, lake, options):
        number = audit(spark, source, lake, options).number
        print("done", number, failed(spark), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
