"""The clock of the front, and the turns of its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar.link.clock import CLOCK


def now_ms() -> int:
    return int(time.clock_gettime(CLOCK) * 1000)


def next_turn(call: Callable[[], None]) -> None:
    """Calls in the next turn of the running event loop."""
    asyncio.get_running_loop().call_soon(call)
