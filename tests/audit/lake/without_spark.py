"""Batches that this process does by itself, one task after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sidecar.audit import ingest, pipeline

SPARK: Any = None
"""In the place of a session, where nothing asks it."""


def here(
    spark: Any, n: int, task: Callable[[Iterator[int]], list[str]], shares: Sequence[Sequence[int]] = ()
) -> list[Any]:
    """What `numbered` does."""
    return [json.loads(t) for share in shares or [[i] for i in range(n)] for t in task(iter(share))]


def run_here(patch: pytest.MonkeyPatch) -> None:
    for where in (ingest, pipeline):
        patch.setattr(where, "numbered", here)
        patch.setattr(where, "parallelism", lambda spark: 2)
