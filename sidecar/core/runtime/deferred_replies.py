"""Requests that are open, and answers that wait until the records of their group are committed.

Kafka's coordinator holds every answer back behind all records of the partition that were written before it. Here those
of the same group count, on which alone an answer rests: while a replica that died is still in the in-sync set, nothing
is committed (`broker.session.timeout.ms`, 9 s), and one group's join must not stop the heartbeats of all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count

from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import Event


class Unsent:
    """Of one term of a partition; the next one begins with another."""

    def __init__(self) -> None:
        self.open: dict[int, Event] = {}
        """By token."""
        self.serial = 0
        """Of the last append."""
        self._committed = 0
        self._asked: deque[tuple[int, int]] = deque()
        """Serial of each append that is under way, and since when."""
        self._written: dict[str, int] = {}
        """Group -> serial of its last append, while any append is under way."""
        self._waiting: list[tuple[int, int, Reply]] = []
        self._order = count()

    @property
    def idle(self) -> bool:
        """Everything that was appended is committed."""
        return self.serial == self._committed

    def append(self, groups: Iterable[str], now_ms: int) -> int:
        """Records of these groups are appended now, under the serial that is returned."""
        self.serial += 1
        self._asked.append((self.serial, now_ms))
        self._written.update(dict.fromkeys(groups, self.serial))
        return self.serial

    def hold(self, reply: Reply) -> bool:
        """Whether this answer has to wait; then `committed` will return it."""
        if self.serial == self._committed:
            return False
        event = self.open.get(reply.token)
        last = 0 if event is None else self._written.get(event.group_id, 0)
        if last <= self._committed:
            return False
        heappush(self._waiting, (last, next(self._order), reply))
        return True

    def waits_ms(self, group_id: str, now_ms: int) -> int:
        """For how long nothing has been committed, if answers of this group wait for that; else 0."""
        if self._written.get(group_id, 0) <= self._committed:
            return 0
        return max(now_ms - self._asked[0][1], 1)

    def committed(self, serial: int) -> Iterator[Reply]:
        """That append and all before it are committed: what need not wait any more, in the order of `hold`."""
        self._committed = serial
        while self._asked and self._asked[0][0] <= serial:
            self._asked.popleft()
        if self.serial == serial:
            self._written.clear()
        waiting = self._waiting
        while waiting and waiting[0][0] <= serial:
            yield heappop(waiting)[2]
