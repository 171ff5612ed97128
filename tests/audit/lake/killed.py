"""A process that audits into a lake and may be killed at any moment:
`python -m tests.audit.lake.killed SOURCE LAKE FORMAT MOST`.

It says "ready" once Spark runs, and a line for each batch that is done.
"""

from __future__ import annotations

import sys

from sidecar.audit.lake import Lake
from sidecar.audit.pipeline import audit, to_do
from sidecar.audit.session import session

SETTINGS = {"spark.master": "local[2,4]", "spark.driver.memory": "512m", "spark.log.level": "OFF"}


def main(source: str, folder: str, format: str, most: str) -> None:
    spark = session({**SETTINGS, "spark.default.parallelism": "2"})
    print("ready", flush=True)
    options, lake = {"max_records": most}, Lake.at(folder, format)
    while to_do(source, lake, options):
        print("done", audit(spark, source, lake, options).number, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
