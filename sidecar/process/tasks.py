"""Background tasks that must not die unseen: an unexpected exception in one ends the process, loudly.

The state is in the log and a peer takes over in a fraction of a second: a clean restart beats a process that
lives on without its ownership, its writer or its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sidecar.coordinator.start import StartError


class Broken(Exception):
    """A background task ended by an exception nobody expected: a bug."""


class Supervisor:
    """`failed` never gets a result; it gets the exception of the first task that broke."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            self.broken(task.get_name(), exc)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Callbacks, too, must not break unseen. What a connection's protocol raises only closes that one."""

        def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            exc = context.get("exception")
            if "handle" in context and exc is not None:
                self.broken(str(context.get("message")), exc)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handler)

    def broken(self, name: str, exc: BaseException) -> None:
        if not self.failed.done():
            if isinstance(exc, StartError):  # no bug: it says what the operator can do
                self.failed.set_exception(exc)
                return
            fault = Broken(f"{name}: {exc!r}")
            fault.__cause__ = exc
            self.failed.set_exception(fault)
