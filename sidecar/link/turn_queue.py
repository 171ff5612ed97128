"""Work that waits for its turn of the event loop: thousands of requests go on together after a takeover or a look at
topics, and heartbeats of others must not wait for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sidecar.link.loopback import IN_A_ROW, Soon

Call = Callable[[], None]


class TurnQueue:
    """Calls in their order, each made once, IN_A_ROW of them in one turn of the loop."""

    def __init__(
        self,
        soon: Soon,
        after_slice: Call = lambda: None,
        broken: Callable[[Exception], None] = lambda exc: None,
    ) -> None:
        """`soon` calls in the next turn of the loop; `after_slice` is called after the calls of one turn; `broken` is
        told what a call raises, which the loop gets, too."""
        self._soon = soon
        self._after_slice = after_slice
        self._broken = broken
        self._calls: deque[Call] = deque()
        self._scheduled = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, calls: Iterable[Call]) -> None:
        """Schedules calls behind those that wait already."""
        self._calls.extend(calls)
        self._schedule()

    def clear(self) -> None:
        """Drops the calls that wait."""
        self._calls.clear()

    def _schedule(self) -> None:
        if self._calls and not self._scheduled:
            self._scheduled = True
            self._soon(self._slice)

    def _slice(self) -> None:
        left = IN_A_ROW
        try:
            while self._calls and left:
                left -= 1
                self._calls.popleft()()
            self._after_slice()
        except Exception as exc:
            self._broken(exc)
            raise
        finally:
            self._scheduled = False
            self._schedule()
