"""Open requests, and answers that wait until the records of their group are committed.

Kafka's coordinator holds every answer back behind all earlier records of the partition. Here only the records of the
same group count, because the answer depends on no others. While a dead replica is still in the in-sync set, nothing is
committed (`broker.session.timeout.ms`, 9 s), and one group's join must not stop the heartbeats of all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.lease import PartitionLease
from sidecar.core.runtime.pending_requests import Tally, refuse
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code


class DeferredReplies:
    """Answers of one term of a partition; each term has its own."""

    def __init__(self, lease: PartitionLease, tally: Tally, out: list[Command]) -> None:
        self._lease, self._tally, self._out = lease, tally, out
        self._open: dict[int, Event] = {}
        """Open requests by token."""
        self._serial = 0
        """Serial of the last append."""
        self._committed = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Serial and start (monotonic ms) of each append under way."""
        self._written: dict[str, int] = {}
        """Group -> serial of its last append, while any append is under way."""
        self._waiting: list[tuple[int, int, Reply]] = []
        self._order = count()

    @property
    def idle(self) -> bool:
        """Whether every append is committed."""
        return self._serial == self._committed

    def opened(self, token: int, event: Event) -> None:
        self._open[token] = event
        self._tally.open += 1

    def append(self, groups: Iterable[str], now_ms: int) -> int:
        """Returns the serial of an append with records of these groups, which begins now."""
        self._serial += 1
        self._under_way.append((self._serial, now_ms))
        self._written.update(dict.fromkeys(groups, self._serial))
        return self._serial

    def send(self, reply: Reply, shard: Shard, now: Now) -> None:
        """Sends the answer at once, or when the last records of its group are committed."""
        if self._serial != self._committed:
            event = self._open.get(reply.token)
            last = 0 if event is None else self._written.get(event.group_id, 0)
            if last > self._committed:
                heappush(self._waiting, (last, next(self._order), reply))
                return
        self._release(reply, shard, now)

    def waits_ms(self, group_id: str, now_ms: int) -> int:
        """Returns how long the oldest append has been under way if answers of this group wait for one; else 0."""
        if self._written.get(group_id, 0) <= self._committed:
            return 0
        return max(now_ms - self._under_way[0][1], 1)

    def committed(self, serial: int, shard: Shard, now: Now) -> None:
        """Marks this append and all earlier ones as committed, and sends the answers that waited for them in the order
        of `send`."""
        self._committed = serial
        while self._under_way and self._under_way[0][0] <= serial:
            self._under_way.popleft()
        if self._serial == serial:
            self._written.clear()
        waiting = self._waiting
        while waiting and waiting[0][0] <= serial:
            self._release(heappop(waiting)[2], shard, now)

    def _release(self, reply: Reply, shard: Shard, now: Now) -> None:
        event = self._open.pop(reply.token, None)
        if event is None:
            return
        self._tally.open -= 1
        if not self._lease.valid(now):  # it waited, and another owner may have decided otherwise since
            refuse(self._out, reply.token, event, Code.NOT_COORDINATOR)
            return
        if reply.grant is not None and not shard.granted(reply.grant):
            reply.grant = None  # the group has changed while the answer waited
        self._out.append(reply)

    def refuse_open(self, code: Code) -> None:
        """Refuses all open requests, because the term is over."""
        self._tally.open -= len(self._open)
        for token, event in self._open.items():
            refuse(self._out, token, event, code)
