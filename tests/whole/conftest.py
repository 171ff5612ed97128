"""Coroutines of simulated processes that never ended are thrown away in the middle: what they still wanted to do
concerns nobody. That happens whenever the collector comes by, so also while another run is played."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.whole import arrivals
from tests.whole.many import quiet


@pytest.fixture(autouse=True)
def _buried() -> Iterator[None]:
    usual = sys.unraisablehook
    quiet()
    try:
        yield
        gc.collect()
    finally:
        arrivals.forget()
        sys.unraisablehook = usual
