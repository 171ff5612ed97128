"""The time in one iteration of the loop for connections that send much, all of them together.

Each has its turn of 64 KiB or of some requests, which takes 0.1 to 0.3 ms. Hundreds of them are readable at once, and a
member's heartbeat would wait for all. So the first ones have `WORK_S` together. In the rest of the iteration a turn is
short, and a connection with more to read or to handle waits behind the others until a later one. A client that sends a
request and waits for its answer is always read and answered at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

WORK_S = 0.004
AT_ONCE = 8
"""Waiting connections that go on in one iteration; their sockets are read only after that."""
SHORT_TURN = 2
"""Requests in a turn once `WORK_S` is over; of those that the sidecar handles, one."""
MUCH_BYTES = 512
"""A read of more bytes than this counts as work; members and consumers send less at a time."""


class LoopBudget:
    def __init__(self) -> None:
        self.exhausted = False
        """Whether this iteration's time is over."""
        self._until_s = 0.0
        self._counts = False
        """Whether this iteration's time has begun; `_next` is scheduled then."""
        self._waiting: deque[Callable[[], None]] = deque()

    def count_work(self) -> None:
        """Called after each piece of work. The first one of an iteration begins its time."""
        now_s = time.monotonic()
        if not self._counts:
            self._counts = True
            self._until_s = now_s + WORK_S
            asyncio.get_running_loop().call_soon(self._next)
        elif now_s > self._until_s:
            self.exhausted = True

    def defer(self, go_on: Callable[[], None]) -> None:
        """Schedules `go_on` for the next iteration that has time for it."""
        self._waiting.append(go_on)
        if not self._counts:
            self.count_work()

    def _next(self) -> None:
        """Begins another iteration and lets waiting connections go on."""
        self._counts = self.exhausted = False
        waiting = self._waiting
        for _ in range(min(AT_ONCE, len(waiting))):
            waiting.popleft()()
            self.count_work()
            if self.exhausted:
                break
        if waiting and not self._counts:
            self.count_work()
