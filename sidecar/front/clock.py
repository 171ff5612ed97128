"""The clock of the front."""

from __future__ import annotations

import time

from sidecar.link.clock import CLOCK


def now_ms() -> int:
    return int(time.clock_gettime(CLOCK) * 1000)
