"""An asyncio event loop on virtual time: the real sidecar runs on it and sees no difference.

`create_connection` and `create_server` lead into tests/whole/net.py, `run_in_executor` is a call that comes back later,
signals are calls, a name is its own address. Everything else is asyncio's own code.
"""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from tests.whole.net import Net, Server
from tests.whole.universe import Life, Proc, Timer, Universe
from tests.whole.violation import Violation

EXECUTOR_MS = 3.0
"""The longest that a call in another thread takes."""
RESOLUTION_S = 1e-9
SPINS = 100_000
"""Callbacks in one moment above which a process spins: nothing does so much in no time."""


def _nothing() -> None:
    """Does nothing, in the place of a callback that was cancelled."""


class _Handle:
    """A handle with what asyncio wants of a callback that is due soon, and nothing else."""

    __slots__ = ("args", "callback", "context", "off")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Any) -> None:
        self.callback, self.args = callback, args
        self.context = copy_context() if context is None else context
        self.off = False

    def cancel(self) -> None:
        """Lets go of the callback, as asyncio's handle does also where it has run."""
        self.off = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.off


class _Later(_Handle):
    """A callback that is due at some time of the process's monotonic clock."""

    __slots__ = ("loop", "timer", "when_s")

    def __init__(self, loop: SimLoop, when_s: float, *args: Any) -> None:
        super().__init__(*args)
        self.loop, self.when_s = loop, when_s
        self.arm()

    def arm(self) -> None:
        universe = self.loop.proc.universe
        wait_s = self.when_s - self.loop.time()
        self.timer: Timer | None = universe.at(universe.now_ms + wait_s * 1000, self._due, self.loop.proc)

    def _due(self) -> None:
        if self.when_s > self.loop.time() + RESOLUTION_S:
            self.arm()  # the host was suspended, and its clock stood still
            return
        self.timer = None
        self.loop.run_now(self)

    def cancel(self) -> None:
        super().cancel()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def when(self) -> float:
        return self.when_s


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, proc: Proc, net: Net) -> None:
        self.buried = False
        super().__init__()
        self.proc = proc
        self.net = net
        self.signals: dict[int, Callable[[], Any]] = {}
        self.callbacks = 0
        """The number of callbacks that have been run."""
        self._soon: deque[_Handle] = deque()
        self._armed = False
        """A turn is to come."""
        self._turning = False
        self._tasks: set[asyncio.Task[Any]] = set()
        proc.on_death.append(self._soon.clear)

    # ---- time ---------------------------------------------------------------------------------------------
    def time(self) -> float:
        return self.proc.mono_s()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> _Handle:
        # A real clock goes on by itself. Here whoever sleeps for less than it can tell would do so for ever.
        delay = max(delay, RESOLUTION_S) if delay > 0 else delay
        return self.call_at(self.proc.mono_s() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> _Handle:
        if self.buried:
            return _Handle(callback, args, context)
        return _Later(self, when, callback, args, context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        if not self.buried and self.proc.life is not Life.DEAD:
            self._soon.append(handle)
            if not self._armed and not self._turning:
                self._armed = True
                self.proc.universe.at(0, self._turn, self.proc)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> _Handle:
        return self.call_soon(callback, *args, context=context)

    def run_now(self, handle: _Handle) -> None:
        """In the event that is under way. Called in the name of the process, which runs."""
        self._soon.append(handle)
        if not self._turning:
            self._turn()

    def call_now(self, callback: Callable[..., Any], *args: Any) -> None:
        """Something has come from outside. Called in nobody's name; the process runs."""
        self._soon.append(_Handle(callback, args, None))
        if not self._turning:
            self.proc.universe.enter(self.proc, self._turn)

    def _turn(self) -> None:
        """Everything that is due now, and what comes of it: rounds of asyncio's `_run_once`, without waiting."""
        self._armed = False
        self._turning = True
        events._set_running_loop(self)
        soon, rounds = self._soon, 0
        try:
            while soon:
                handle = soon.popleft()
                if not handle.off:
                    rounds += 1
                    try:
                        handle.context.run(handle.callback, *handle.args)
                    except Violation:
                        raise
                    except Exception as exc:
                        if not self.buried:  # asyncio would log it and go on
                            told = f"{self.proc.name}: an exception in a callback: {exc!r}"
                            raise Violation(told) from exc
                    if rounds > SPINS:
                        raise Violation(f"{self.proc.name} spins: {handle.callback}")
        finally:
            self.callbacks += rounds
            events._set_running_loop(None)
            self._turning = False

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

    # ---- the environment ----------------------------------------------------------------------------------------
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

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int | None, **kwargs: Any
    ) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port or 0))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **kwargs: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self.net.connect(self, protocol_factory, host, int(port))

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str | list[str], port: int, **kwargs: Any
    ) -> Server:
        (host,) = [host] if isinstance(host, str) else host  # nobody here has two families of addresses
        return self.net.listen(self, protocol_factory, host, int(port))

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        self.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.signals.pop(sig, None) is not None

    def _write_to_self(self) -> None:
        """Does nothing: the loop does not sleep in a selector."""

    def _process_events(self, event_list: Any) -> None:
        """Does nothing: there are no such events."""


@contextmanager
def virtual_time(universe: Universe) -> Iterator[None]:
    """The clocks are those of the process whose work is being done."""
    monotonic, wall, of_clock = time.monotonic, time.time, time.clock_gettime

    def mono_s() -> float:
        proc = universe.current
        return universe.now_ms / 1000 + 1000.0 if proc is None else proc.mono_s()

    def wall_s() -> float:
        proc = universe.current
        return wall() if proc is None else proc.wall_ms() / 1000

    def boot_s(clock: int) -> float:
        if clock == time.CLOCK_MONOTONIC:
            return mono_s()
        assert clock == time.CLOCK_BOOTTIME
        proc = universe.current
        return universe.now_ms / 1000 + 1000.0 if proc is None else proc.boot_s()

    time.monotonic, time.time, time.clock_gettime = mono_s, wall_s, boot_s
    try:
        yield
    finally:
        time.monotonic, time.time, time.clock_gettime = monotonic, wall, of_clock
