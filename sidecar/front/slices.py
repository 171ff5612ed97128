"""Handles large requests in slices: one slice of one request in a turn of the loop, from all clients together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Slices:
    def __init__(self) -> None:
        self._next: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Schedules `go_on` in a turn of its own, behind those that wait already."""
        self._next.append(go_on)
        if len(self._next) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        try:
            self._next[0]()
        finally:
            self._next.popleft()
            if self._next:
                asyncio.get_running_loop().call_soon(self._turn)
