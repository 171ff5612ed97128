"""Increments of a lake while Spark is warm: what `sidecar audit stream` does every so often.

    python -m benchmarks.audit_warm SOURCE LAKE --first 1000000 --increment 10000 --count 3

One session takes the first records as one batch, and then the increments, each as a batch. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from sidecar.audit.lake import Lake
from sidecar.audit.pipeline import audit
from sidecar.audit.session import session


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("lake", type=Path)
    p.add_argument("--first", type=int, default=1_000_000)
    p.add_argument("--increment", type=int, default=10_000)
    p.add_argument("--count", type=int, default=3)
    args = p.parse_args()
    shutil.rmtree(args.lake, ignore_errors=True)
    spark, lake = session(), Lake.at(args.lake)
    done: list[dict[str, Any]] = []
    for most in (args.first, *[args.increment] * args.count):
        begin = time.monotonic()
        marks: list[float] = []
        batch = audit(
            spark,
            args.source,
            lake,
            {"max_records": str(most)},
            lambda _, m=marks, b=begin: m.append(time.monotonic() - b),  # type: ignore[misc]
        )
        took = time.monotonic() - begin
        silver = marks[0] if marks else took
        done.append({"records": batch.records, "seconds": took, "to_silver_s": silver, "gold_s": took - silver})
        done[-1] = {n: round(v, 2) for n, v in done[-1].items()}
        print(f"batch {batch.number}: {done[-1]}", file=sys.stderr, flush=True)
    spark.stop()
    print(json.dumps({"first": done[0], "increments": done[1:]}), flush=True)


if __name__ == "__main__":
    main()
