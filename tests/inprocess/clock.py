"""An event loop whose time is not the machine's: when nothing is left to do, the next timer is due at once.

    run(test())     # instead of asyncio.run

Sessions, leases and pauses of seconds take none, and a loaded machine changes no verdict: time passes only while
everybody waits. `time.monotonic`, `time.time` and the clock of leases follow the loop. It is for what lives in memory.
While a thread works, time stands still: a loaded machine may run it late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from sidecar.coordinator.runtime.background import Background

T = TypeVar("T")
STARTS_S = 100_000.0
"""First reading of the monotonic clock."""

GRACE_S = 0.005
"""Real time for bytes to get from one socket to another through the kernel."""

LEAST_S = 1e-6
"""Shortest sleep."""

LOOK_S = 0.05
"""Interval between checks of a condition that depends on the time alone."""

THREADS_S = 0.001
"""The same in real time, while threads work: their results may be no events of the loop."""


HANGS_S = 60.0
"""Real time after which work in a thread counts as hanging."""


class Stuck(AssertionError):
    """All tasks wait, and none for a timer, or for a thread that hangs: the test would hang."""


class _Selector:
    """Waits for files as the selector does, and for timers not at all."""

    def __init__(self, loop: VirtualLoop, real: Any) -> None:
        self._loop, self._real = loop, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def select(self, timeout: float | None = None) -> Any:
        loop = self._loop
        files = len(self._real.get_map()) > 1  # beside the pipe by which threads wake the loop
        threads = loop.in_threads > loop.hanging
        if files or threads or timeout is None:  # else the kernel has no news: it costs more than a test's step
            events = self._real.select(0)
            if events:
                return events
        if timeout == 0:
            return []
        if threads:
            return self._await_threads()
        if files and (events := self._real.select(min(timeout or GRACE_S, GRACE_S))):
            return events
        if loop.look():
            return []
        if timeout is None:
            if files:
                return self._real.select(None)
            raise Stuck("everybody waits, and nothing is to come")
        # The last step ends exactly at the timer: the loop takes one as due that is due in a nanosecond.
        loop.now_s += LOOK_S if loop.conditions and timeout > 2 * LOOK_S else timeout
        return []

    def _await_threads(self) -> Any:
        """Waits in real time, while that of the loop stands still."""
        loop, end_s = self._loop, time.perf_counter() + HANGS_S
        while not (events := self._real.select(THREADS_S if loop.conditions else HANGS_S)) and not loop.look():
            if time.perf_counter() > end_s:
                raise Stuck("work in a thread does not come back; is that what the test is about? See `hanging`.")
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now_s = STARTS_S
        self.in_threads = 0
        """Number of calls under way in other threads."""
        self.hanging = 0
        """Number of those that do not come back, as the test wants it."""
        self.conditions: dict[asyncio.Future[None], Callable[[], object]] = {}
        """The conditions that `until` waits for, by the future that ends the wait."""
        super().__init__()
        self._selector = _Selector(self, self._selector)  # type: ignore[has-type]

    def time(self) -> float:
        return self.now_s

    def call_later(  # type: ignore[override]
        self, delay: float, *args: Any, **more: Any
    ) -> asyncio.TimerHandle:
        """A real clock goes on by itself; here who sleeps for less than it can tell would do so for ever."""
        return super().call_later(max(delay, LEAST_S) if delay > 0 else delay, *args, **more)

    async def until(self, true: Callable[[], object], seconds: float) -> bool:
        """Waits until this is true, for so long at most, and returns whether it is. Its value is looked at whenever
        nothing is left to do, before time passes."""
        if true():
            return True
        future = self.create_future()
        self.conditions[future] = true
        timer = self.call_later(seconds, self.conditions.__setitem__, future, lambda: True)
        try:
            await future
        finally:
            timer.cancel()
            self.conditions.pop(future, None)
        return bool(true())

    def look(self) -> bool:
        """Wakes those whose condition is true, and returns whether there are any."""
        woken = False
        for future, true in list(self.conditions.items()):
            try:
                if not true():
                    continue
                future.set_result(None)
            except Exception as exc:  # noqa: BLE001 - raised by whoever waits
                future.set_exception(exc)
            del self.conditions[future]
            woken = True
        return woken

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        future.add_done_callback(lambda _: self._came_back())
        return future

    async def shutdown_default_executor(self) -> None:
        self.in_threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._came_back()

    def _came_back(self) -> None:
        self.in_threads -= 1

    def submit(
        self, real: Callable[..., None], own: Background, key: str, work: Any, done: Any, limit_s: float
    ) -> None:
        """`Background.submit`, counted in `in_threads`."""
        self.in_threads += 1
        out = True

        def on_done(result: Any, exc: BaseException | None) -> None:
            nonlocal out
            if out:
                out = False
                self._came_back()
            done(result, exc)

        real(own, key, work, on_done, limit_s)


@contextmanager
def clocks(loop: VirtualLoop) -> Iterator[None]:
    """The clocks of this process follow this loop meanwhile."""
    wall_s = time.time()
    submit = Background.submit

    def submitted(self: Background, key: str, work: Any, done: Any, limit_s: float = float("inf")) -> None:
        loop.submit(submit, self, key, work, done, limit_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: loop.now_s)
        patch.setattr(time, "clock_gettime", lambda clock: loop.now_s)
        patch.setattr(time, "time", lambda: wall_s + loop.now_s - STARTS_S)
        patch.setattr(Background, "submit", submitted)
        yield


@contextmanager
def hanging() -> Iterator[None]:
    """Time passes meanwhile, though one thread works: its work hangs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.hanging += 1
    try:
        yield
    finally:
        loop.hanging -= 1


def block_loop(seconds: float) -> None:
    """Lets time pass while the loop runs nothing, as a blocking call does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now_s += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        with clocks(loop):
            return runner.run(_whole(loop, main))


async def _whole(loop: VirtualLoop, main: Coroutine[Any, Any, T]) -> T:
    """Waits for the work in threads, too: what is left would meet the patches of the next test."""
    try:
        return await main
    finally:
        await loop.until(lambda: not loop.in_threads, LOOK_S)
