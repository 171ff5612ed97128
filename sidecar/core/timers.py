"""Deadlines by key. A heartbeat that moves its deadline later costs one dict write, no heap push."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

Key = tuple[str, ...]


class Timers:
    """Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, deadline_ms: int, tag: int = 0) -> None:
        """Arm or move. `tag` comes back with the expiry (the epoch a rebalance timer was armed in)."""
        old = self._deadlines.get(key)
        self._deadlines[key] = (deadline_ms, tag)
        if old is None or deadline_ms < old[0]:
            heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: Key) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: Key) -> int | None:
        found = self._deadlines.get(key)
        return None if found is None else found[0]

    def next_ms(self) -> int | None:
        """When to call `expired` next; may be early, never late."""
        while self._heap:
            at, key = self._heap[0]
            live = self._deadlines.get(key)
            if live is None:
                heappop(self._heap)
            elif live[0] > at:
                heappop(self._heap)
                heappush(self._heap, (live[0], key))
            else:
                return at
        return None

    def expired(self, mono_ms: int) -> Iterator[tuple[Key, int]]:
        """Take out all that are due, one after the other in order of their deadlines. What is done about one may move
        or cancel those that follow; each comes once at most."""
        due: dict[Key, None] = {}
        while (at := self.next_ms()) is not None and at <= mono_ms:
            due[heappop(self._heap)[1]] = None
        for key in due:
            live = self._deadlines.get(key)
            if live is None:
                continue
            if live[0] > mono_ms:
                heappush(self._heap, (live[0], key))
                continue
            del self._deadlines[key]
            yield key, live[1]

    def shift(self, by_ms: int) -> None:
        """Move every deadline later: the process stood still and could hear nobody."""
        self._deadlines = {k: (at + by_ms, tag) for k, (at, tag) in self._deadlines.items()}

    def __len__(self) -> int:
        return len(self._deadlines)
