"""Batches that this process does by itself, one task after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pytest

from sidecar.audit.errors import AuditError
from sidecar.audit.ingest import batch as ingest
from sidecar.audit.run import pipeline

SPARK: Any = None
"""Stands in for a Spark session that nothing calls."""


def run_in_this_process(
    spark: Any, n: int, task: Callable[[Iterator[int]], list[str]], shares: Sequence[Sequence[int]] = ()
) -> list[Any]:
    """Runs the tasks that `numbered` would run in Spark."""
    try:
        return [json.loads(t) for share in shares or [[i] for i in range(n)] for t in task(iter(share))]
    except (OSError, duckdb.IOException, duckdb.InvalidInputException) as exc:
        raise AuditError(f"a task could not read or write its files ({exc})") from exc


def run_here(patch: pytest.MonkeyPatch) -> None:
    for where in (ingest, pipeline):
        patch.setattr(where, "numbered", run_in_this_process)
        patch.setattr(where, "parallelism", lambda spark: 2)
