"""Tasks of a batch as rows of a DataFrame: executors read and write the lake's files, and the driver collects their
reports in JSON. So they run on classic Spark and on Spark Connect, and are in the plan and the UI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sidecar.audit.errors import AuditError, Misused, NoTopic, Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = Callable[[Iterator[Any]], Iterable[str]]
"""Takes numbers and yields JSON. Must be a function of a module, or a `partial` of one."""
RAISED: dict[str, type[AuditError]] = {c.__name__: c for c in (AuditError, Misused, NoTopic, Refused)}
TO_DO = (
    "is the lake on a file system that all workers share, with room on it, and are all its files there?"
    " `sidecar audit status` and `check` read them, too"
)
SPLITS = re.compile(r"splits=(\d+)")


def parallelism(spark: SparkSession) -> int:
    """Returns how many tasks run at once, from Spark's plan: Spark Connect shows it nowhere else."""
    ((plan,),) = spark.sql("explain select * from range(1)").collect()
    splits = SPLITS.search(plan)
    return 1 if splits is None else int(splits[1])


def even(n: int, tasks: int) -> list[range]:
    """Returns the numbers below n in equal shares, at most one for each task."""
    count = max(1, min(n, tasks))
    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]


def falling(weights: Sequence[int], parallelism: int) -> list[range]:
    """Returns the indices of these weights in shares of falling size. A share is at most half of what is left for each
    processor, or a single index. So there are few tasks, and the last ones are so small that all processors end at
    about the same time."""
    shares: list[range] = []
    begin, share, left = 0, 0, sum(weights)
    for i, weight in enumerate(weights):
        if i > begin and share + weight > left / (2 * parallelism):
            shares.append(range(begin, i))
            begin, share, left = i, 0, left - share
        share += weight
    return [*shares, range(begin, len(weights))] if weights else []


def attempted(task: Task, ids: Iterator[int]) -> list[str]:
    """Returns the reports of a task. An error that the driver must raise is a report, too: Spark would try the task
    again, and its own error has only the text of the traceback."""
    import duckdb
    import pyarrow as pa

    try:
        return list(task(ids))
    except AuditError as exc:
        error = exc
    except (OSError, pa.ArrowInvalid, duckdb.IOException, duckdb.InvalidInputException) as exc:
        error = AuditError(f"a task could not read or write its files ({type(exc).__name__}: {exc}): {TO_DO}")
    return [json.dumps({"error": type(error).__name__, "message": str(error)})]


def answered(reports: Iterable[str]) -> list[Any]:
    """Returns the reports of tasks. Raises the error that a task reported."""
    rows = list(map(json.loads, reports))
    for row in rows:
        if "error" in row:
            raise RAISED[row["error"]](row["message"])
    return rows


def numbered(spark: SparkSession, n: int, task: Task, shares: Sequence[range] = ()) -> list[Any]:
    """Runs a task for each number below n, or for each of these `shares`, started in this order. Returns the tasks'
    reports. Raises the error of this package that a task raised; AuditError if it cannot read or write its files."""
    if not n:
        return []
    listed = [list(share) for share in shares or even(n, n)]

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        ids = (i for batch in batches for i in batch.column(0).to_pylist())
        reports = attempted(task, chain.from_iterable(listed[i] for i in ids))
        yield pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], ["report"])

    rows = spark.range(0, len(listed), 1, len(listed)).mapInArrow(run, "report string")
    return answered(row.report for row in rows.collect())
