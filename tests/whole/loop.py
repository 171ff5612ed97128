"""An asyncio event loop on virtual time: the real sidecar runs on it and sees no difference.

`create_connection` and `create_server` lead into tests/whole/net.py, `run_in_executor` is a call that comes back later,
signals are calls. Everything else is asyncio's own code.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.whole.net import Net, Server
from tests.whole.universe import Proc, Timer, Universe

EXECUTOR_MS = 3.0
"""The longest that a call in another thread takes."""


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, proc: Proc, net: Net) -> None:
        self.buried = False
        super().__init__()
        self.proc = proc
        self.net = net
        self.signals: dict[int, Callable[[], Any]] = {}
        self._clock_resolution = 1e-9
        self._wake: Timer | None = None
        self._wake_at = float("inf")
        self._turning = False
        self._tasks: set[asyncio.Task[Any]] = set()
        proc.on_death.append(self._forget)
        proc.on_resume.append(self._arm)

    # ---- time ---------------------------------------------------------------------------------------------
    def time(self) -> float:
        return self.proc.mono_s()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if self.buried:
            return asyncio.TimerHandle(when, callback, args, self, context)
        handle = super().call_at(when, callback, *args, context=context)
        self._arm()
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.buried:
            return asyncio.Handle(callback, args, self, context)
        handle = super().call_soon(callback, *args, context=context)
        self._arm()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _arm(self) -> None:
        """See to it that the universe comes back when there is something to do."""
        if self._turning:
            return
        now_ms = self.proc.universe.now_ms
        if self._ready:  # type: ignore[attr-defined]
            at = now_ms
        else:
            scheduled = self._scheduled  # type: ignore[attr-defined]
            if not scheduled:
                return
            at = now_ms + max(0.0, (scheduled[0]._when - self.time()) * 1000)
        if at >= self._wake_at and self._wake is not None and self._wake.work is not None:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = at
        self._wake = self.proc.universe.at(at, self._turn, self.proc)

    def _turn(self) -> None:
        """One round of the loop: what asyncio's `_run_once` does, without waiting."""
        self._wake, self._wake_at = None, float("inf")
        self._turning = True
        events._set_running_loop(self)
        try:
            ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
            end = self.time() + self._clock_resolution
            while scheduled and (scheduled[0]._cancelled or scheduled[0]._when < end):
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                if handle._cancelled:
                    self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
                else:
                    ready.append(handle)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)
            self._turning = False
        self._arm()

    def _forget(self) -> None:
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        if self._wake is not None:
            self._wake.cancel()

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        """The loop holds its tasks: those of a dead process must not be collected, and so run their last blocks, while
        the others go on."""
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def bury(self) -> None:
        """At the end of a run: what never ended is forgotten without a word."""
        self.buried = True
        self.set_exception_handler(lambda loop, context: None)
        self._tasks.clear()

    # ---- the edges ----------------------------------------------------------------------------------------
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def done() -> None:
            if future.done():
                return
            try:
                result = func(*args)
            except Exception as exc:  # noqa: BLE001 - it travels to whoever waits
                future.set_exception(exc)
            else:
                future.set_result(result)

        self.proc.later(self.proc.universe.rng.uniform(0, EXECUTOR_MS), done)
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **kwargs: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self.net.connect(self, protocol_factory, host, int(port))

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **kwargs: Any
    ) -> Server:
        return self.net.listen(self, protocol_factory, host, int(port))

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        self.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.signals.pop(sig, None) is not None

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""


@contextmanager
def virtual_time(universe: Universe) -> Iterator[None]:
    """`time.monotonic` and `time.time` are those of the process whose work is being done."""
    monotonic, wall = time.monotonic, time.time

    def mono_s() -> float:
        proc = universe.current
        return universe.now_ms / 1000 + 1000.0 if proc is None else proc.mono_s()

    def wall_s() -> float:
        proc = universe.current
        return wall() if proc is None else proc.wall_ms() / 1000

    time.monotonic, time.time = mono_s, wall_s
    try:
        yield
    finally:
        time.monotonic, time.time = monotonic, wall
