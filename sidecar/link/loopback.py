"""Front and coordinator in one process: a message is a call. Nothing else passes between them.

When thousands of members come at once, and all are answered at once, the event loop must still turn: their records have
to leave for the broker, and the broker's answers must be seen. So only some messages pass in a row, of requests without
an immediate answer and of replies to earlier requests. The others wait in a queue for the next turn of the loop, and
messages behind a queue wait in it, too: they stay in their order.

Void and Lease end what the coordinator granted, so they pass at once. A reply that waits meanwhile is delivered without
the grant that they ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sidecar.link.messages import AskAccess, Grant, GroupRules, Lease, Reply, ToCoordinator, ToFront, View, Void
from sidecar.link.ports import CoordinatorEnd, LinkedFront

IN_A_ROW = 64
"""Messages that pass before the loop turns: a few milliseconds of work."""
Soon = Callable[[Callable[[], None]], object]
Queued = Reply | View | GroupRules | AskAccess


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
        self._queue: deque[Queued] = deque()
        """Messages that wait for the front."""
        self._queued = 0
        """Number of messages that this queue has ever taken; each is numbered by it."""
        self._queue_left = IN_A_ROW
        self._voided: dict[str, int] = {}
        """Group -> number from which on messages were queued after its last Void."""
        self._lease_ended = 0
        """The same of the last Lease that ended the lease."""

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
        self._queue.clear()
        self._voided.clear()
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
            try:
                self._coordinator.from_front(self, message)
            finally:
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
        if isinstance(message, Void | Lease):
            if self._queue:
                self._end_grants(message)
            self._front.from_coordinator(message)
        elif self._queue:
            self._wait(message)
        elif self._asking and type(message) is Reply:
            self._answered += 1
            self._front.from_coordinator(message)
        elif self._queue_left > 0:
            self._queue_left -= 1
            self._front.from_coordinator(message)
        else:
            self._soon(self._send_more)
            self._wait(message)

    def _wait(self, message: Queued) -> None:
        self._queue.append(message)
        self._queued += 1

    def _end_grants(self, message: Void | Lease) -> None:
        """Notes which grants of queued replies this message ends. The queue may be long, and there may be many of
        these messages: a reply is only compared when it is delivered."""
        if isinstance(message, Void):
            self._voided.update(dict.fromkeys(message.groups, self._queued))
        elif message.until_ms == 0:
            self._lease_ended = self._queued

    def _next(self) -> Queued:
        """Takes the first message out of the queue. A reply has lost the grant that was ended while it waited."""
        number = self._queued - len(self._queue)
        message = self._queue.popleft()
        if isinstance(message, Reply) and self._ended(message.grant, number):
            message = Reply(message.token, message.answer)
        if not self._queue:
            self._voided.clear()
        return message

    def _ended(self, grant: Grant | None, number: int) -> bool:
        return grant is not None and number < max(self._lease_ended, self._voided.get(grant.group_id, 0))

    def _send_more(self) -> None:
        self._queue_left = IN_A_ROW
        try:
            while self._front is not None and self._queue and self._queue_left > 0:
                self._queue_left -= 1
                self._front.from_coordinator(self._next())
        finally:
            if self._queue:
                self._soon(self._send_more)
