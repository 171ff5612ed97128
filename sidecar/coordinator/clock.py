"""The clock of the coordinator."""

from __future__ import annotations

import time

from sidecar.core.runtime.turn import Now
from sidecar.link.clock import CLOCK

STEP_MS = 1_000
"""Slack for the wall clock, in ms: setting it forward by less than this ends no lease early."""


def wall_ms() -> int:
    return int(time.time() * 1000)


def now() -> Now:
    return Now(int(time.clock_gettime(CLOCK) * 1000), int(time.time() * 1000))


def lease_end(sent: Now, lease_ms: int) -> Now:
    """Returns the end of a lease that a request sent at `sent` has proved."""
    return Now(sent.mono_ms + lease_ms, sent.wall_ms + lease_ms + STEP_MS)
