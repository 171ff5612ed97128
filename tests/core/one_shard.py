"""A shard with a clock of its own: what the worlds of all kinds of groups have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from msgspec import json

from sidecar.assign.spec import AssignorError
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_assignment import AssignorDone, RunAssignor
from sidecar.core.runtime.effects import Effects, Reply
from sidecar.core.runtime.events import NO_TOKEN, Answer, DeleteGroup, DeletionCheck, Event
from sidecar.core.runtime.group_loader import load
from sidecar.core.runtime.records import Record, Tombstone, key_of
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now

EVENTS: json.Decoder[Any] = json.Decoder(
    reduce(or_, [*(e for e in REGISTRY.events if e is not AssignorDone), DeletionCheck, DeleteGroup])
)
"""Events in lines of `log.turns`. A story has its own assignor runs, so their ends are no such lines."""


class OneShard(ABC):
    assignors: Mapping[str, Any]
    now_ms: int
    shard: Shard
    log: list[Record]
    replies: dict[int, Reply]
    running: list[RunAssignor]

    @property
    @abstractmethod
    def now(self) -> Now: ...

    @abstractmethod
    def request(self, event: Event) -> int:
        """The token under which the answer comes, now or later, in `replies`."""

    @abstractmethod
    def apply(self, fx: Effects) -> None: ...

    def ask(self, event: Event) -> Answer:
        """The answer, which must come at once."""
        return self.replies.pop(self.request(event)).answer

    def pasted(self, line: str) -> list[str]:
        """A line `event JSON`, as `log.turns` tells it. Returns the answers that it brings."""
        known = set(self.replies)
        self.request(EVENTS.decode(line.partition(" ")[2]))
        return [json.encode(self.replies.pop(t).answer).decode() for t in sorted(self.replies.keys() - known)]

    def deliver(self, event: Event) -> None:
        """The end of background work."""
        self.apply(self.shard.handle(event, NO_TOKEN, self.now))

    def sleep(self, ms: int, step_ms: int = 100) -> None:
        until = self.now_ms + ms
        while self.now_ms < until:
            self.now_ms = min(until, self.now_ms + step_ms)
            self.apply(self.shard.wake(self.now))

    def finish(self, error: str = "") -> None:
        """The offloaded assignor runs under way come to their end, or fail."""
        running, self.running = self.running, []
        for ask in running:
            try:
                if error:
                    raise AssignorError(error)
                run = REGISTRY.runner(ask.input.kind)
                done = AssignorDone(ask.group_id, ask.input, run(ask.input, self.assignors[ask.input.assignor]))
            except AssignorError as exc:
                done = AssignorDone(ask.group_id, ask.input, None, str(exc))
            self.deliver(done)

    def compacted(self) -> list[Record]:
        """The last record of each key, as compaction leaves them, without tombstones."""
        last: dict[tuple[str, str, str], Record] = {}
        for r in self.log:
            key = key_of(r)
            last.pop(key, None)
            if not isinstance(r, Tombstone):
                last[key] = r
        return list(last.values())

    def loaded(self, shard: Shard) -> Shard:
        """A new owner's shard, from the compacted log."""
        by_group: dict[str, list[Record]] = {}
        for r in self.compacted():
            by_group.setdefault(r.group_id, []).append(r)
        for group_id, records in by_group.items():
            load(shard, group_id, records, self.now)
        return shard
