"""A clock with one heap of events, and one partition of the state topic with fencing and compaction."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.core.runtime.records import Key, Record, Tombstone, key_of

Writer = tuple[int, int]
"""A sidecar and the number of its process: after a crash it is another writer."""
NOBODY: Writer = (-1, -1)


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0

    def at(self, delay_ms: int, fn: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay_ms, self.count, fn))

    def run_until(self, then_ms: int) -> None:
        heap, pop = self.heap, heapq.heappop
        while self.now < then_ms:
            self.now, _, fn = pop(heap)
            fn()


@dataclass(slots=True)
class Entry:
    epoch: int
    record: Record | None
    """None: the claim of this epoch."""


class Log:
    """`fence` is the newest producer epoch, `claimed` the newest owner epoch of a claim; compacted entries are None."""

    def __init__(self, on_append: Callable[[Log, Record, int], None], on_batch: Callable[[], None]) -> None:
        self.entries: list[Entry | None] = []
        self.fence = self.claimed = 0
        self.fencing = True
        self.writers: dict[int, Writer] = {0: NOBODY}
        """By owner epoch."""
        self._on_append, self._on_batch = on_append, on_batch

    def init(self, writer: Writer) -> int:
        self.fence += 1
        self.writers[self.fence] = writer
        return self.fence

    def append(self, epoch: int, records: Sequence[Record | None]) -> int:
        """The offset of the last one; -1: fenced. A new fence shuts earlier writers out no later than its claim."""
        if self.fencing and epoch < self.fence and epoch < self.claimed:
            return -1
        for r in records:
            self.entries.append(Entry(epoch, r))
            if r is None:
                self.claimed = max(self.claimed, epoch)
            else:
                self._on_append(self, r, epoch)
        self._on_batch()
        return len(self.entries) - 1

    def last_values(self, until: int | None = None) -> dict[str, list[Record]]:
        """Returns the last value of each key by group, as a copy of the log has it. Records of an owner before the last
        claim are void."""
        claimed = 0
        last: dict[Key, Record] = {}
        for e in self.entries[:until]:
            if e is None:
                continue
            if e.record is None:
                claimed = max(claimed, e.epoch)
            elif e.epoch >= claimed:
                key = key_of(e.record)
                last.pop(key, None)
                if not isinstance(e.record, Tombstone):
                    last[key] = e.record
        groups: dict[str, list[Record]] = {}
        for r in last.values():
            groups.setdefault(r.group_id, []).append(r)
        return groups

    def compact(self, rng: random.Random) -> None:
        """Up to a random point: older values of a key go, so do tombstones, sometimes."""
        end = rng.randrange(len(self.entries) + 1)
        newest: dict[Key, int] = {}
        for i, e in enumerate(self.entries):
            if e is not None and e.record is not None:
                newest[key_of(e.record)] = i
        forget = rng.random() < 0.5
        for i, e in enumerate(self.entries[:end]):
            if e is None or e.record is None:
                continue
            if newest[key_of(e.record)] != i or (forget and isinstance(e.record, Tombstone)):
                self.entries[i] = None
