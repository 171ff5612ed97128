"""The order of takeovers: partitions that have groups come first.

Each takeover costs the brokers two replicated writes. When a broker has died, its successors have the most to do,
and an empty partition should not delay one whose groups wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_S = 0.5
"""Longest wait of a partition without groups, in seconds: a client may want to begin one there."""


class TakeoverOrder:
    def __init__(self, has_groups: Callable[[int], bool]) -> None:
        self._has_groups = has_groups
        self._first: set[int] = set()
        """Partitions with groups that are being taken over."""
        self._over = asyncio.Event()
        self._over.set()

    def begins(self, partition: int) -> None:
        """Called when the takeover of this partition begins. Those that begin in one turn of the loop are ordered."""
        if self._has_groups(partition):
            self._first.add(partition)
            self._over.clear()

    def ends(self, partition: int) -> None:
        """Called when the partition is taken over, or the attempt has ended."""
        self._first.discard(partition)
        if not self._first:
            self._over.set()

    async def comes(self, partition: int) -> None:
        """Returns when the takeover of this partition may go on."""
        if partition not in self._first and not self._over.is_set():
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._over.wait()
            except TimeoutError:
                return
