"""Work that waits for its turn of the event loop: thousands of requests go on together after a takeover or a look at
topics, and heartbeats of others must not wait for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sidecar.link.loopback import IN_A_ROW, Soon
from sidecar.link.ports import Tasks

Call = Callable[[], None]


class TurnQueue:
    """Calls in their order, IN_A_ROW of them in one turn of the loop. `after_slice()` is called after them."""

    def __init__(self, name: str, soon: Soon, after_slice: Call, tasks: Tasks) -> None:
        """`name`: what is broken if a call raises; `soon` calls in the next turn of the loop."""
        self._name = name
        self._soon = soon
        self._after_slice = after_slice
        self._tasks = tasks
        self._calls: deque[Call] = deque()

    def add(self, call: Call) -> None:
        """Schedules a call behind those that wait already."""
        self._calls.append(call)
        if len(self._calls) == 1:
            self._soon(self._slice)

    def _slice(self) -> None:
        # A call stays in the queue while it runs: then calls that it adds schedule no second slice.
        calls = self._calls
        try:
            for _ in range(min(IN_A_ROW, len(calls))):
                try:
                    calls[0]()
                finally:
                    calls.popleft()
            self._after_slice()
        except Exception as exc:
            self._tasks.broken(self._name, exc)
            raise
        finally:
            if calls:
                self._soon(self._slice)
