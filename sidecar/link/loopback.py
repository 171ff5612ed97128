"""Front and coordinator in one process: a message is a call. Nothing else passes between them."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.link.messages import ToCoordinator, ToFront
from sidecar.link.ports import CoordinatorEnd, FrontEnd


class Loopback:
    """Both ends at once. Of the coordinator's messages, those that come before a front is there are kept for it."""

    def __init__(self) -> None:
        self._coordinator: CoordinatorEnd | None = None
        self._front: FrontEnd | None = None
        self._early: list[ToFront] = []

    def attach(self, front: FrontEnd) -> Callable[[ToCoordinator], None]:
        """Connect a front; returns how it sends. It sends nothing before it has been shown a `View`."""
        self._front = front
        early, self._early = self._early, []
        for message in early:
            front.from_coordinator(message)
        return self.to_coordinator

    def serve(self, coordinator: CoordinatorEnd) -> None:
        """The coordinator is there: from now on requests reach it."""
        self._coordinator = coordinator
        coordinator.connect(self)

    def to_coordinator(self, message: ToCoordinator) -> None:
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.from_front(self, message)

    def from_coordinator(self, message: ToFront) -> None:
        if self._front is None:
            self._early.append(message)
        else:
            self._front.from_coordinator(message)
