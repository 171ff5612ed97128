"""Who waits for something that is known by a key: until it happens, or for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Future[None]]] = {}

    async def wait(self, key: Hashable, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=timeout_s)
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def wake(self, key: Hashable) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)
