"""Front and coordinator in one process: a message is a call. Nothing else passes between them.

When thousands of members come at once, or are answered at once, the event loop must still turn: what they lead to has
to leave for the broker, and the broker's answers must be seen. So only some requests and some replies pass in a row;
those behind them wait in a queue for the next turn of the loop, all in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from sidecar.link.messages import Reply, ToCoordinator, ToFront
from sidecar.link.ports import CoordinatorEnd, FrontEnd

IN_A_ROW = 64
"""Messages that pass before the loop turns: a few milliseconds of work."""
M = TypeVar("M")
Soon = Callable[[Callable[[], None]], object]


class _Way(Generic[M]):
    """One direction."""

    def __init__(self, deliver: Callable[[M], None], soon: Soon) -> None:
        self.waiting: deque[M] = deque()
        self._deliver = deliver
        self._soon = soon
        self._left = IN_A_ROW

    def put(self, message: M) -> None:
        if self._left and not self.waiting:
            self._left -= 1
            self._deliver(message)
        else:
            if not self.waiting:
                self._soon(self._turned)
            self.waiting.append(message)

    def _turned(self) -> None:
        self._left = IN_A_ROW
        waiting = self.waiting
        try:
            while waiting and self._left:
                self._left -= 1
                self._deliver(waiting.popleft())
        finally:
            if waiting:
                self._soon(self._turned)

    def empty(self) -> None:
        """Deliver all that waits, now."""
        while self.waiting:
            self._deliver(self.waiting.popleft())


class Loopback:
    """Both ends at once. A front is attached before the coordinator serves. `soon` calls in the next turn of the event
    loop."""

    def __init__(self, soon: Soon) -> None:
        self._coordinator: CoordinatorEnd | None = None
        self._front: FrontEnd | None = None
        self._there: _Way[ToCoordinator] = _Way(self._to_coordinator, soon)
        self._back: _Way[ToFront] = _Way(self._to_front, soon)
        self.to_coordinator = self._there.put

    def attach(self, front: FrontEnd) -> Callable[[ToCoordinator], None]:
        """Connect a front; returns how it sends. It sends nothing before it has been shown a `View`."""
        self._front = front
        return self.to_coordinator

    def serve(self, coordinator: CoordinatorEnd) -> None:
        """The coordinator is there: from now on requests reach it."""
        self._coordinator = coordinator
        coordinator.connect(self)

    def _to_coordinator(self, message: ToCoordinator) -> None:
        if self._coordinator is not None:
            self._coordinator.from_front(self, message)

    def from_coordinator(self, message: ToFront) -> None:
        if type(message) is not Reply:
            self._back.empty()  # what ends a grant or a lease counts from now on, and overtakes no reply
        self._back.put(message)

    def _to_front(self, message: ToFront) -> None:
        if self._front is not None:
            self._front.from_coordinator(message)
