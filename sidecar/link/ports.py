"""Interfaces that front and coordinator use: a log, figures, the other end of the link. It implements none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sidecar.link.messages import ToCoordinator, ToFront


class Logger(Protocol):
    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Figure(Protocol):
    """One metric with its labels fixed."""

    def inc(self, amount: float = 1) -> None: ...
    def set(self, value: float) -> None: ...
    def observe(self, value: float) -> None: ...
    def set_function(self, value: Callable[[], float]) -> None: ...


class Figures(Protocol):
    """The metrics by name; process/metrics.py has the table. Raises KeyError for an unknown name."""

    def __call__(self, name: str, *labels: str) -> Figure: ...


class Tasks(Protocol):
    """Background work that must not fail unseen: an unexpected exception ends all that it may have left in doubt
    (process/tasks.py)."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Any:
        """Returns the task, an `asyncio.Task`."""

    def broken(self, name: str, exc: BaseException) -> None: ...


class FrontEnd(Protocol):
    """A front as the coordinator sees it."""

    def from_coordinator(self, message: ToFront) -> None: ...


class LinkedFront(FrontEnd, Protocol):
    """A front as the link sees it."""

    def link_lost(self) -> None:
        """Forgets what the coordinator granted, and refuses what it has not answered."""


class CoordinatorEnd(Protocol):
    """The coordinator as a front sees it. Answers go to `front`."""

    def connect(self, front: FrontEnd) -> None:
        """Connects a front. It gets the lease and the view at once, and each change from then on."""

    def disconnect(self, front: FrontEnd) -> None: ...

    def from_front(self, front: FrontEnd, message: ToCoordinator) -> None: ...
