"""How long the event loop keeps everybody waiting: a timer that comes late was held up by something else."""

from __future__ import annotations

import asyncio
import time

from sidecar.link.ports import Figures


async def watch_loop(figures: Figures, every_s: float) -> None:
    """For ever. A stop of the loop shows as its length, less what was left of `every_s` when it began."""
    lag = figures("loop_lag")
    while True:
        due = time.monotonic() + every_s
        await asyncio.sleep(every_s)
        lag.observe(max(0.0, time.monotonic() - due))
