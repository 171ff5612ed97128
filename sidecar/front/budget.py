"""How long connections that send much may work in one iteration of the loop, all of them together.

Each has its turn of 64 KiB or of some requests, which takes 0.1 to 0.3 ms. Hundreds of them are readable at once, and
a member's heartbeat would wait for all. So the first ones have `WORK_S` together. In the rest of the iteration a turn
is short, and whoever has more to come waits behind the others until a later one. Who sends a request and waits for its
answer is always read and answered at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

WORK_S = 0.004
AT_ONCE = 8
"""So many of those that wait may go on in an iteration: what they have to come is read only after that."""
SHORT_TURN = 2
"""Requests."""
MUCH_BYTES = 512
"""One read of more than that is work; members and consumers send less at a time."""


class LoopBudget:
    def __init__(self) -> None:
        self.over = False
        """The time of this iteration is over."""
        self._until_s = 0.0
        self._counts = False
        """This iteration's time has begun, and its end is due."""
        self._waiting: deque[Callable[[], None]] = deque()

    def works(self) -> None:
        """Called behind a piece of work. The first one of an iteration begins its time."""
        now_s = time.monotonic()
        if not self._counts:
            self._counts = True
            self._until_s = now_s + WORK_S
            asyncio.get_running_loop().call_soon(self._next)
        elif now_s > self._until_s:
            self.over = True

    def later(self, go_on: Callable[[], None]) -> None:
        """Call it in the next iteration in which there is time for it."""
        self._waiting.append(go_on)
        if not self._counts:
            self.works()

    def _next(self) -> None:
        """Another iteration has begun."""
        self._counts = self.over = False
        waiting = self._waiting
        for _ in range(min(AT_ONCE, len(waiting))):
            waiting.popleft()()
            self.works()
            if self.over:
                break
        if waiting and not self._counts:
            self.works()
