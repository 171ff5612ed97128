"""Loads the groups of the partitions that were taken over, in slices, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar.coordinator.clock import now
from sidecar.core.runtime.service import Service
from sidecar.link.ports import Tasks

PAUSE_S = 0.05
"""Seconds between two tries while no partition has a lease: without one no group is loaded and no request answered."""


class LoadTask:
    """Loads all partitions in one task: so each turn of the loop has one slice, even after many takeovers at once."""

    def __init__(self, service: Service, slice_s: float, run_commands: Callable[[], None], tasks: Tasks) -> None:
        """`slice_s`: length of a slice; `run_commands()`: carries out the commands of the core."""
        self._service = service
        self._slice_s = slice_s
        self._run_commands = run_commands
        self._tasks = tasks
        self._left: dict[int, None] = {}
        """Partitions with groups that are not loaded yet."""
        self._runs = False

    def begin(self, partition: int) -> None:
        self._left[partition] = None
        if not self._runs:
            self._runs = True
            self._tasks.spawn(self._run(), "load")

    async def _run(self) -> None:
        while self._left:
            await asyncio.sleep(0 if self._slice() else PAUSE_S)
        self._runs = False

    def _slice(self) -> bool:
        """Loads one slice. Returns False if no partition may be loaded now."""
        until = time.monotonic() + self._slice_s
        at = now()
        leased = dict.fromkeys(p for p in self._left if self._service.owners[p].lease.valid(at))
        any_leased = bool(leased)
        while leased and time.monotonic() < until:
            p = self._next(leased)
            if not self._service.owners[p].load_next(now()):
                del leased[p], self._left[p]
        self._run_commands()
        return any_leased

    def _next(self, among: dict[int, None]) -> int:
        """Returns a partition with requests that wait for a group, if there is one. Such partitions take turns."""
        p = next((p for p in among if self._service.owners[p].loader.queue.behind), None)
        if p is None:
            return next(iter(among))
        for order in (among, self._left):
            del order[p]
            order[p] = None
        return p
