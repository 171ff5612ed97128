"""Measures how long the event loop is blocked: a timer that fires late was held up by other work."""

from __future__ import annotations

import asyncio
import time

from sidecar.link.ports import Figures


async def watch_loop(figures: Figures, every_s: float) -> None:
    """Measures for ever. A block shows as its length, less what was left of `every_s` when it began. `loop_busy` is the
    part in which the loop itself worked: on a busy machine the rest went to other processes."""
    lag, busy = figures("loop_lag"), figures("loop_busy")
    while True:
        due, used_s = time.monotonic() + every_s, time.thread_time()
        await asyncio.sleep(every_s)
        late_s = max(0.0, time.monotonic() - due)
        lag.observe(late_s)
        busy.observe(min(late_s, time.thread_time() - used_s))
