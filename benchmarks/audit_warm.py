"""Increments of a lake while Spark is warm: what `sidecar audit stream` does every so often.

    python -m benchmarks.audit_warm SOURCE LAKE --first 1000000 --increment 10000 --count 3
    python -m benchmarks.audit_warm made out/bench/audit/lake-300 --first 30 --increment 30 --count 299 --maintain

One session takes the first records as one batch, and then the increments, each as a batch. The source `made` has as
many as that, of a few groups. With `--maintain` the lake is then looked at, maintained, and looked at again: its files,
and how long a question takes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.audit_data import Shape, dataset
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.maintain import TABLES, maintain
from sidecar.audit.run.pipeline import audit
from sidecar.audit.run.session import session

FEW = {"groups": 6, "members": 40}
QUESTIONS = {"status": ["status"], "ownership": ["ownership", "--topic", "orders-0"]}
AT_BOTH_ENDS = 10
ANSWERED = (0, 1, 4)
"""Exit codes: the questions have been answered, whatever the answer is."""


def seen(lake: Lake) -> dict[str, Any]:
    """Measures the lake: its files, how many of them readers open, and how long the commands take."""
    files = [p for p in Path(lake.base).rglob("*") if p.is_file()]
    figures: dict[str, Any] = {"files": len(files), "mb": round(sum(p.stat().st_size for p in files) / 1e6, 1)}
    figures["read"] = sum(len(lake.files(t)) for t in TABLES)
    for name, words in QUESTIONS.items():
        begin = time.monotonic()
        command = [sys.executable, "-m", "sidecar.cli.main", "audit", *words, "--lake", str(lake.base)]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        assert code in ANSWERED, f"{command}: exit code {code}"
        figures[f"{name}_s"] = round(time.monotonic() - begin, 2)
    return figures


def maintained(lake: Lake) -> dict[str, Any]:
    """Twice: what was replaced is first kept for readers that have begun, and then goes."""
    before = seen(lake)
    begin = time.monotonic()
    maintain(lake)
    took = time.monotonic() - begin
    kept = seen(lake)
    maintain(lake, hours=0)
    return {"before": before, "seconds": round(took, 2), "after": kept, "after_retention": seen(lake)}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("lake", type=Path)
    p.add_argument("--first", type=int, default=1_000_000)
    p.add_argument("--increment", type=int, default=10_000)
    p.add_argument("--count", type=int, default=3)
    p.add_argument("--maintain", action="store_true")
    args = p.parse_args()
    if args.source == "made":
        shape = Shape(args.first + args.count * args.increment, **FEW)
        args.source = f"parquet://{dataset(shape, args.lake.absolute().parent, 2)}"
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
    figures: dict[str, Any] = {"first": done[0]}
    if args.maintain:
        seconds = [d["seconds"] for d in done[1:]]
        ends = (seconds[:AT_BOTH_ENDS], seconds[-AT_BOTH_ENDS:])
        figures["increment_s"] = dict(zip(("early", "late"), map(statistics.median, ends), strict=True))
        figures["maintenance"] = maintained(lake)
    else:
        figures["increments"] = done[1:]
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
