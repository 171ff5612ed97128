"""Front and coordinator in one process: a message is a call. Nothing else passes between them."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.link.messages import ToCoordinator, ToFront
from sidecar.link.ports import CoordinatorEnd, FrontEnd


class Loopback:
    """Both ends at once. A front is attached before the coordinator serves."""

    def __init__(self) -> None:
        self._coordinator: CoordinatorEnd | None = None
        self._front: FrontEnd | None = None

    def attach(self, front: FrontEnd) -> Callable[[ToCoordinator], None]:
        """Connect a front; returns how it sends. It sends nothing before it has been shown a `View`."""
        self._front = front
        return self.to_coordinator

    def serve(self, coordinator: CoordinatorEnd) -> None:
        """The coordinator is there: from now on requests reach it."""
        self._coordinator = coordinator
        coordinator.connect(self)

    def to_coordinator(self, message: ToCoordinator) -> None:
        if self._coordinator is not None:
            self._coordinator.from_front(self, message)

    def from_coordinator(self, message: ToFront) -> None:
        if self._front is not None:
            self._front.from_coordinator(message)
