"""Front and coordinator in one process: a message is a call. Nothing else passes between them.

When thousands of members come at once, and all are answered at once, the event loop must still turn: their records have
to leave for the broker, and the broker's answers must be seen. So only some messages pass in a row, of requests without
an immediate answer and of replies to earlier requests. The others wait in a queue for the next turn of the loop, and
any message behind a queue waits in it, too: all stay in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sidecar.link.messages import Reply, ToCoordinator, ToFront
from sidecar.link.ports import CoordinatorEnd, LinkedFront

IN_A_ROW = 64
"""Messages that pass before the loop turns: a few milliseconds of work."""
Soon = Callable[[Callable[[], None]], object]


class Loopback:
    """Both ends at once. A front is attached before the coordinator serves. `soon` calls in the next turn of the event
    loop."""

    def __init__(self, soon: Soon) -> None:
        self._coordinator: CoordinatorEnd | None = None
        self._front: LinkedFront | None = None
        self._soon = soon
        self._asks: deque[ToCoordinator] = deque()
        self._asks_left = IN_A_ROW
        self._asking = False
        self._answered = 0
        """Number of replies to the request that is being handled, or to one that its reply let the client send."""
        self._replies: deque[Reply] = deque()
        self._replies_left = IN_A_ROW

    def attach(self, front: LinkedFront) -> Callable[[ToCoordinator], None]:
        """Connects a front; returns its function to send. It sends nothing before it has got a `View`."""
        self._front = front
        return self.to_coordinator

    def serve(self, coordinator: CoordinatorEnd) -> None:
        """Lets requests reach the coordinator from now on."""
        self._coordinator = coordinator
        coordinator.connect(self)

    def lose(self) -> None:
        """Disconnects the coordinator, and drops what it has not answered."""
        coordinator, self._coordinator = self._coordinator, None
        self._asks.clear()
        self._replies.clear()
        if coordinator is not None:
            if self._front is not None:
                self._front.link_lost()
            coordinator.disconnect(self)

    # ---- to the coordinator -------------------------------------------------------------------------------
    def to_coordinator(self, message: ToCoordinator) -> None:
        if self._asks_left > 0 and not self._asks:
            self._ask(message)
        else:
            if not self._asks:
                self._soon(self._ask_more)
            self._asks.append(message)

    def _ask(self, message: ToCoordinator) -> None:
        if self._coordinator is not None:
            within, self._asking = self._asking, True
            answered = self._answered
            self._coordinator.from_front(self, message)
            self._asking = within
            if self._answered == answered:
                self._asks_left -= 1

    def _ask_more(self) -> None:
        self._asks_left = IN_A_ROW
        try:
            while self._asks and self._asks_left > 0:
                self._ask(self._asks.popleft())
        finally:
            if self._asks:
                self._soon(self._ask_more)

    # ---- to the front -------------------------------------------------------------------------------------
    def from_coordinator(self, message: ToFront) -> None:
        if self._front is None:
            return
        if type(message) is not Reply:
            while self._replies:  # what ends a grant or a lease counts at once, and overtakes no reply
                self._front.from_coordinator(self._replies.popleft())
            self._front.from_coordinator(message)
        elif self._replies:
            self._replies.append(message)
        elif self._asking:
            self._answered += 1
            self._front.from_coordinator(message)
        elif self._replies_left > 0:
            self._replies_left -= 1
            self._front.from_coordinator(message)
        else:
            self._soon(self._reply_more)
            self._replies.append(message)

    def _reply_more(self) -> None:
        self._replies_left = IN_A_ROW
        try:
            while self._front is not None and self._replies and self._replies_left > 0:
                self._replies_left -= 1
                self._front.from_coordinator(self._replies.popleft())
        finally:
            if self._replies:
                self._soon(self._reply_more)
