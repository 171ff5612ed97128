"""Deadlines by key. A heartbeat that moves its deadline later costs one dict write, no heap push."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

Key = tuple[str, ...]
SIFTED, DUE = 2_000, 50
"""Limits of one wake over all partitions: entries of a heap that it moves to their later deadlines, and timers that it
expires. After a takeover and many heartbeats, the deadlines of many members lie close together."""
SMALL = 1_000
"""A heap of this length may hold any number of cancelled timers."""


@dataclass(slots=True)
class TimersBudget:
    """Work that one wake may still do: entries to move, and timers to expire. A count, and no time, so that simulations
    repeat."""

    sifted: int = SIFTED
    due: int = DUE


class Timers:
    """Deadlines by key, in monotonic milliseconds."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, Key]] = []
        self._held: dict[Key, tuple[tuple[int, int], int]] = {}
        """Key -> its entry in `_deadlines` when it was held back, and its timeout in milliseconds."""
        self.behind = False
        """Whether the last call of `expired` left timers that are due."""

    def set(self, key: Key, deadline_ms: int, tag: int = 0) -> None:
        """Arms or moves a timer. `tag` comes back with the expiry (the epoch a rebalance timer was armed in)."""
        old = self._deadlines.get(key)
        self._deadlines[key] = (deadline_ms, tag)
        if old is None or deadline_ms < old[0]:
            if len(self._heap) > 2 * len(self._deadlines) + SMALL:  # most of them are cancelled
                self._heap[:] = [(at, each) for each, (at, _) in self._deadlines.items()]
                heapify(self._heap)
            else:
                heappush(self._heap, (deadline_ms, key))

    def hold(self, key: Key, until_ms: int, timeout_ms: int, tag: int = 0) -> None:
        """Arms a timer for `until_ms`, which `release` may bring forward."""
        self.set(key, until_ms, tag)
        self._held[key] = self._deadlines[key], timeout_ms

    def release(self, at_ms: int, now_ms: int) -> None:
        """Brings held timers forward to `at_ms`, but never to less than their timeout from now. Timers that were armed
        anew meanwhile stay."""
        held, self._held = self._held, {}
        for key, (armed, timeout_ms) in held.items():
            deadline_ms = max(at_ms, now_ms + timeout_ms)
            if self._deadlines.get(key) is armed and armed[0] > deadline_ms:
                self.set(key, deadline_ms, armed[1])

    def cancel(self, key: Key) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: Key) -> int | None:
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def next_ms(self, budget: TimersBudget | None = None) -> int | None:
        """Returns when to call `expired` next; may be early, never late."""
        self._sift(budget or TimersBudget())
        return self._heap[0][0] if self._heap else None

    def _sift(self, budget: TimersBudget) -> int:
        """Brings the earliest deadline in force to the front of the heap, in as many steps as `budget` has left.
        Returns how many remain."""
        heap = self._heap
        while heap and budget.sifted:
            at, key = heap[0]
            live = self._deadlines.get(key)
            if live is not None and live[0] <= at:
                break
            budget.sifted -= 1
            heappop(heap)
            if live is not None:
                heappush(heap, (live[0], key))
        return budget.sifted

    def expired(self, mono_ms: int, budget: TimersBudget | None = None) -> Iterator[tuple[Key, int]]:
        """Takes out the timers that are due and yields them in order of their deadlines, as many as `budget` has left.
        The handling of one may move or cancel later ones; each comes once at most."""
        due: dict[Key, None] = {}
        heap, budget = self._heap, budget or TimersBudget()
        while budget.due and self._sift(budget) and heap and heap[0][0] <= mono_ms:
            due[heappop(heap)[1]] = None
            budget.due -= 1
        self.behind = bool(heap) and heap[0][0] <= mono_ms
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
        """Moves every deadline later: the process stood still and received no heartbeat."""
        moved = {k: (at + by_ms, tag) for k, (at, tag) in self._deadlines.items()}
        held = ((k, timeout_ms) for k, (armed, timeout_ms) in self._held.items() if self._deadlines.get(k) is armed)
        self._held = {k: (moved[k], timeout_ms) for k, timeout_ms in held}
        self._deadlines = moved

    def __len__(self) -> int:
        return len(self._deadlines)
