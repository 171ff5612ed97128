"""Background tasks that must not die unseen.

The tasks of a coordinator belong together (`Supervisor`): an unexpected exception in one of them makes their state
doubtful, so they end together, and the coordinator is started again from the log (coordination.py). The tasks of the
process stand alone (`Lasting`): the log names the one that broke, and the ports stay open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.link.ports import Figures, Logger

AGAIN_S = 1.0
"""Pause before a task that should last is started again."""


class Broken(Exception):
    """A background task ended by an exception nobody expected: a bug."""


class _Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            self.broken(task.get_name(), exc)

    def broken(self, name: str, exc: BaseException) -> None:
        raise NotImplementedError

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reports callbacks that break, too. An exception in a connection's protocol only closes that connection."""

        def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            exc = context.get("exception")
            if "handle" in context and exc is not None:
                self.callback_broke(str(context.get("message")), exc)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handler)

    def callback_broke(self, name: str, exc: BaseException) -> None:
        self.broken(name, exc)


class Supervisor(_Tasks):
    """The tasks of one coordinator. `failed` gets the exception of the first task that broke, and never a result."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = super().spawn(work, name)
        if self._over:
            task.cancel()
        return task

    def broken(self, name: str, exc: BaseException) -> None:
        if not self.failed.done():
            if isinstance(exc, StartError):  # no bug: it says what the operator can do
                self.failed.set_exception(exc)
                return
            fault = Broken(f"{name}: {exc!r}")
            fault.__cause__ = exc
            self.failed.set_exception(fault)

    async def end(self) -> None:
        """Cancels all tasks, and each that is spawned later."""
        self._over = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks))
        self.failed.cancel()


class Lasting(_Tasks):
    """The tasks of the process. `coordination`: the coordinator's tasks, while there are any. A callback that breaks
    does not tell which half it belongs to: it counts as the coordinator's, which has most of them, and state that one
    may have left half changed."""

    def __init__(self, log: Logger, figures: Figures) -> None:
        super().__init__()
        self.coordination: Supervisor | None = None
        self._log = log
        self._faults = figures("task_faults")

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Like `spawn`, for work that should last: it is started again after a fault."""
        return self.spawn(self._kept(work, name), name)

    async def _kept(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                await work()
                return
            except Exception as exc:  # noqa: BLE001 - a bug of any kind must not end what serves clients
                self.broken(name, exc)
            await asyncio.sleep(AGAIN_S)

    def broken(self, name: str, exc: BaseException) -> None:
        self._faults.inc()
        self._log.error("a background task broke; ports stay open", task=name, error=repr(exc), trace=exc)

    def callback_broke(self, name: str, exc: BaseException) -> None:
        if self.coordination is not None:
            self.coordination.broken(name, exc)
        else:
            self.broken(name, exc)
