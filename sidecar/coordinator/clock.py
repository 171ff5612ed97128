"""The clock of the coordinator."""

from __future__ import annotations

import time

from sidecar.core.turn import Now


def now() -> Now:
    return Now(int(time.monotonic() * 1000), int(time.time() * 1000))
