"""A clock with one heap of events, and one partition of the state topic with fencing and compaction."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.core.records import Record, Tombstone


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0

    def at(self, delay_ms: int, fn: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay_ms, self.count, fn))

    def step(self) -> None:
        self.now, _, fn = heapq.heappop(self.heap)
        fn()


@dataclass
class Entry:
    epoch: int
    record: Record | None
    """None: the claim of this epoch."""


class Log:
    """One partition of the state topic. `epoch` is the newest fence, `compacted` entries are None."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        self.fence = 0
        self.fencing = True
        self.on_append: Callable[[Record, int], None] = lambda record, epoch: None

    def init(self) -> int:
        self.fence += 1
        return self.fence

    def append(self, epoch: int, records: list[Record | None]) -> bool:
        """False: fenced."""
        claimed = max((e.epoch for e in self.entries if e is not None and e.record is None), default=0)
        if self.fencing and (epoch < self.fence and epoch < claimed):
            return False
        for r in records:
            self.entries.append(Entry(epoch, r))
            if r is not None:
                self.on_append(r, epoch)
        return True

    def last_values(self, until: int | None = None) -> list[Record]:
        """What a tail holds: the last value of each key; records of an owner before the last claim are void."""
        claimed = 0
        last: dict[tuple[str, str, str], Record] = {}
        for e in self.entries[:until]:
            if e is None:
                continue
            if e.record is None:
                claimed = max(claimed, e.epoch)
                continue
            if e.epoch < claimed:
                continue
            r = e.record
            key = (str(r.kind), r.group_id, r.sub_id)
            last.pop(key, None)
            if not isinstance(r, Tombstone):
                last[key] = r
        return list(last.values())

    def compact(self, rng: random.Random) -> None:
        """Up to a random point: older values of a key go, so do tombstones, sometimes."""
        end = rng.randrange(len(self.entries) + 1)
        newest: dict[tuple[str, str, str], int] = {}
        for i, e in enumerate(self.entries):
            if e is not None and e.record is not None:
                newest[(str(e.record.kind), e.record.group_id, e.record.sub_id)] = i
        forget = rng.random() < 0.5
        for i, e in enumerate(self.entries[:end]):
            if e is None or e.record is None:
                continue
            key = (str(e.record.kind), e.record.group_id, e.record.sub_id)
            if newest[key] != i or (forget and isinstance(e.record, Tombstone)):
                self.entries[i] = None
