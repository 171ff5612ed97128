"""The clock of the coordinator."""

from __future__ import annotations

import time

from sidecar.core.turn import Now


def wall_ms() -> int:
    return int(time.time() * 1000)


def now() -> Now:
    return Now(int(time.monotonic() * 1000), int(time.time() * 1000))
