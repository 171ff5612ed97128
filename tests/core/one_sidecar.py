"""A sidecar with one partition and a log in memory, for any kinds of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.runtime.commands import Append, Claim, Fence, Follow, Work
from sidecar.core.runtime.effects import Log as Line
from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.records import Record, key_of, single
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.topics import Topic
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey, decode_key


class Log:
    """The state topic's last values, as bytes: every record passes the codec both ways."""

    def __init__(self, registry: Registry, files: Mapping[str, str]) -> None:
        self.codec = StateCodec(registry, files)
        self.encoder = Encoder(self.codec, 7, {})
        self.values: dict[tuple[str, str, str], bytes] = {}
        self.written: list[Record] = []

    def append(self, records: list[Record]) -> None:
        for r, encoded in zip(single(records), self.encoder.encode(records, 1), strict=True):
            self.written.append(r)
            assert decode_key(encoded.key) == key_of(r)
            if encoded.value is None:
                self.values.pop(key_of(r), None)
            else:
                self.values[key_of(r)] = encoded.value

    def groups(self, partition: int) -> list[str]:
        return sorted({group_id for _, group_id, _ in self.values})

    def size(self, partition: int, group_id: str) -> int:
        return sum(k[1] == group_id for k in self.values)

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        found = [(k, v) for k, v in self.values.items() if k[1] == group_id]
        yield from self.codec.registry.in_order([self.codec.decode(StateKey(*k), v)[0] for k, v in found])


class OneSidecar:
    def __init__(
        self,
        log: Log,
        registry: Registry,
        assignors: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[tuple[str, str], Any] | None = None,
        topics: tuple[Topic, ...] = (),
    ) -> None:
        self.log = log
        default = Computed(lambda kind, group_id: registry.kinds[kind].config())
        ports = Ports(assignors or {}, default if config is None else config)
        self.service = Service(1, 1, registry, ports, log)
        self.at = 1_000
        self.replies: dict[int, Answer] = {}
        self.work: list[Work] = []
        self.lines: list[Line] = []
        self.service.lease.extended(10**9)
        self.service.topics(topics, self.now)
        self.service.assigned([1], 1, {1}, self.now)
        self.drive()
        while self.service.owners[0].load_next(self.now):
            self.drive()

    @property
    def now(self) -> Now:
        return Now(self.at, self.at)

    def drive(self) -> None:
        """Fulfil the duties at once."""
        owner, out = self.service.owners[0], self.service.out
        while out:
            c = out.pop(0)
            if isinstance(c, Fence):
                owner.lifecycle.fenced(c.attempt, 7, self.now)
            elif isinstance(c, Claim):
                owner.lifecycle.claimed(c.attempt, 0, self.now)
            elif isinstance(c, Follow):
                owner.replayed(c.attempt, self.now)
            elif isinstance(c, Append):
                self.log.append(list(c.records))
                owner.committed(c.attempt, c.serial, self.now)
            elif isinstance(c, Reply):
                assert c.token not in self.replies, "a request is answered once"
                self.replies[c.token] = c.answer
            elif isinstance(c, Work):
                self.work.append(c)
            elif isinstance(c, Line):
                self.lines.append(c)

    def ask(self, token: int, event: Event) -> Answer | None:
        self.service.request(token, event, self.now)
        self.drive()
        return self.replies.get(token)

    def done(self, work: Work, event: Event) -> None:
        """The end of background work."""
        self.service.owners[0].done(work.attempt, event, self.now)
        self.drive()

    def sleep(self, ms: int) -> None:
        """In steps: a process that stood still would give members their time back."""
        until = self.at + ms
        while self.at < until:
            self.at = min(until, self.at + 100)
            self.service.wake(self.now)
            self.drive()
