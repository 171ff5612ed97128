"""Batches that this process does by itself, one task after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sidecar.audit.ingest import batch as ingest
from sidecar.audit.lake.spark_tasks import answered, attempted
from sidecar.audit.run import pipeline

SPARK: Any = None
"""Stands in for a Spark session that nothing calls."""


def run_in_this_process(
    spark: Any, n: int, task: Callable[[Iterator[int]], list[str]], shares: Sequence[Sequence[int]] = ()
) -> list[Any]:
    """Runs the tasks that `numbered` would run in Spark."""
    return answered(text for share in shares or [[i] for i in range(n)] for text in attempted(task, iter(share)))


def run_here(patch: pytest.MonkeyPatch) -> None:
    for where in (ingest, pipeline):
        patch.setattr(where, "numbered", run_in_this_process)
        patch.setattr(where, "parallelism", lambda spark: 2)
