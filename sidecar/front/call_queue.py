"""Calls that are due together, perhaps thousands: only some of them are made before the event loop turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

AT_ONCE = 64
"""Calls that are made before the loop turns: one or two milliseconds of work."""


class CallQueue:
    """Calls in their order, each made once."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._going_on = False
        """Whether calls are made now, or in the next iteration of the loop."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, calls: Iterable[Callable[[], None]]) -> None:
        """Makes the first ones now, and the others in the next iterations of the loop. All wait if others wait."""
        self._calls.extend(calls)
        if not self._going_on:
            self._go_on()

    def clear(self) -> None:
        """Drops the calls that wait."""
        self._calls.clear()

    def _go_on(self) -> None:
        self._going_on = True
        left = AT_ONCE
        try:
            while self._calls and left:
                left -= 1
                self._calls.popleft()()
        finally:
            self._going_on = bool(self._calls)
            if self._calls:
                asyncio.get_running_loop().call_soon(self._go_on)
