"""Coroutines of simulated processes that never ended are thrown away behind the test that has played them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _buried() -> Iterator[None]:
    yield
    hook, sys.unraisablehook = sys.unraisablehook, lambda found: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
