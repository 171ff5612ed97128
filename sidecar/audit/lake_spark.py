"""Runs what executors do, and brings what they tell to the driver: file infos and counts, never rows.

`mapInArrow` would do the same, but PySpark asks for pandas there, although nothing here uses it.
"""

from __future__ import annotations

import json
import pickle
import re
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sidecar.audit.errors import AuditError, Misused, NoTopic
from sidecar.audit.lake_parquet import put_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterator[Any]], Iterable[str]]
"""Takes numbers, or Arrow batches; tells JSON. Must be a function of a module, or a `partial` of one."""
RAISED = (AuditError.__name__, Misused.__name__, NoTopic.__name__)
TASK_SAID = re.compile(rf"{re.escape(AuditError.__module__)}\.(?:{'|'.join(RAISED)}): (.*)")
TASK_FAILED = re.compile(
    r"^((?:FileNotFoundError|PermissionError|OSError|\w+(?=: \[Errno)|pyarrow\.lib\.ArrowInvalid): .*)$", re.MULTILINE
)
"""In what Spark tells of a task that failed: the last line of its Python traceback."""


def even(n: int, tasks: int) -> list[range]:
    """The numbers below n, shared among this many tasks."""
    count = max(1, min(n, tasks))
    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]


def falling(weights: Sequence[int], parallelism: int) -> list[range]:
    """The places of these weights in shares that become smaller: each is at most half of what one of the processors
    would still have to do, or a single one. So there are few tasks, and those at the end are so small that all
    processors end at about the same time."""
    shares: list[range] = []
    begin, share, left = 0, 0, sum(weights)
    for i, weight in enumerate(weights):
        if i > begin and share + weight > left / (2 * parallelism):
            shares.append(range(begin, i))
            begin, share, left = i, 0, left - share
        share += weight
    return [*shares, range(begin, len(weights))] if weights else []


def numbered(spark: SparkSession, n: int, task: Task, shares: Sequence[range] = ()) -> list[Any]:
    """One task for each number below n, or for each of these `shares` of them. They begin in this order. Raises
    AuditError if a task did, or an OSError."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PythonException

    if not n:
        return []
    listed = [list(share) for share in shares or even(n, n)]
    rows = spark.sparkContext.parallelize(listed, len(listed))
    told = rows.mapPartitions(partial(_all_of, task))
    try:
        return [json.loads(t) for t in told.collect()]
    except (Py4JJavaError, PythonException) as exc:
        said = TASK_SAID.search(str(exc))
        if said is not None:
            raise AuditError(said[1]) from exc
        failed = TASK_FAILED.search(str(exc))
        if failed is None:
            raise
        raise AuditError(
            f"a task could not read or write its files ({failed[1]}): is the lake on a file system that all workers"
            " share, with room on it, and are all its files there? `sidecar audit status` and `check` read them, too"
        ) from exc


def _all_of(task: Task, shares: Iterator[Sequence[int]]) -> Iterable[str]:
    return task(chain.from_iterable(shares))


def over_rows(rows: DataFrame, task: Task, folder: Path) -> list[Any]:
    """One task for each partition of the rows. `folder`: where what they tell is put down in between."""
    rows.sparkSession.dataSource.register(LakeTask)
    path = folder / f"_told-{uuid.uuid4().hex}.json"
    packed = b64encode(pickle.dumps(task)).decode()
    try:
        rows.write.format(LakeTask.name()).mode("append").options(task=packed, told=str(path)).save()
        return [json.loads(t) for t in json.loads(path.read_text())]
    finally:
        path.unlink(missing_ok=True)


@dataclass
class Told(WriterCommitMessage):
    rows: list[str]


class _Writer(DataSourceArrowWriter):
    def __init__(self, task: str, path: str) -> None:
        self.task, self.path = task, path

    def write(self, iterator: Iterator[Any]) -> Told:
        task = pickle.loads(b64decode(self.task))
        return Told(list(task(iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        put_json(Path(self.path), [row for m in messages if isinstance(m, Told) for row in m.rows])


class LakeTask(DataSource):
    """Not for users: a sink whose tasks do what an option says."""

    @classmethod
    def name(cls) -> str:
        return "group_state_lake_task"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(self.options["task"], self.options["told"])
