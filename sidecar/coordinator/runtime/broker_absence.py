"""The time at which the sidecar's broker counts as gone: it has not answered for `gone_s`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar.link.ports import Tasks


class BrokerAbsence:
    """Watches the broker. `on_gone()` is called when it is gone, and maybe again as long as it is."""

    def __init__(self, gone_s: float, on_gone: Callable[[], None], tasks: Tasks) -> None:
        self.gone_s = gone_s
        self._gone = on_gone
        self._tasks = tasks
        self._answered_s = time.monotonic()
        self._waiting: asyncio.Task[None] | None = None
        """The countdown that runs while a front reports the broker as silent."""

    @property
    def silent(self) -> bool:
        """Whether a front has reported the broker as silent, and not yet that it answers again."""
        return self._waiting is not None

    def answered(self) -> None:
        """Called when the broker has answered a listing of topics, which is asked for rarely."""
        self._answered_s = time.monotonic()

    def unanswered(self) -> None:
        if time.monotonic() - self._answered_s > self.gone_s:
            self._gone()

    def silence(self, quiet_ms: int) -> None:
        """Takes in a front's report: the broker has been silent for `quiet_ms`, or answers again, -1. Clients that wait
        show that sooner than the rare listing of topics."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if quiet_ms >= 0:
            left_s = max(self.gone_s - quiet_ms / 1000, 0.0)
            self._waiting = self._tasks.spawn(self._gone_in(left_s), "broker silent")

    async def _gone_in(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._gone()
