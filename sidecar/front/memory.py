"""Limits the memory of the requests that are not handled yet, of all sessions: Kafka's queued.max.request.bytes.

One half of it is shared out: every connection that may be open has a small part of its own, which no other can take, so
clients with small requests are always read. The other half is common. A session takes from it if it needs more than its
own part: for the announced size of a request that is still coming in, or for bytes that wait behind a request being
answered. When nothing is left it is read no further until another session gives something back. As in Kafka's pool, the
last session that gets something may exceed the limit, so no request waits for ever because of its size. Nothing is
allocated here: memory grows with the bytes that come, and the bytes of one read are there before they are counted. So
reads are short (reads.py) when half of the common memory is taken.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from sidecar.front.reads import Reads
from sidecar.front.unread import Unread

AT_ONCE = 64
"""Sessions that go on before the loop turns, when memory is given back."""


class Holder(Protocol):
    """The flow of a session."""

    reserved_bytes: int
    waits_for_memory: bool

    def adjust(self) -> None: ...


class Memory:
    """Memory that sessions share. `limit_bytes`: of the common half, 0: no limit; `own_bytes`: of each session, without
    asking; `unread`: the limit for what was sent and is not taken."""

    def __init__(self, limit_bytes: int, own_bytes: int, unread: Unread | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.own_bytes = own_bytes
        self.reserved_bytes = 0
        self.tight = False
        """Whether half of the common memory is taken."""
        self.unread = unread or Unread(0)
        self.reads = Reads(self, self.unread)
        self._waiting: OrderedDict[Holder, None] = OrderedDict()
        self._going_on = False
        """Whether sessions that waited go on now, or in the next iteration of the loop."""

    def take(self, holder: Holder, size: int, keep: bool) -> bool:
        """Reserves `size` bytes for the holder, in place of what it had. Returns False if it has to wait; its `adjust`
        is called when that may have changed. `keep`: what it has is in use meanwhile. Otherwise it gives that back: if
        all sessions waited for the rest of a request and kept what is there, none would ever have enough."""
        before = holder.reserved_bytes
        if size > before and self.limit_bytes and self.reserved_bytes >= self.limit_bytes:
            if not holder.waits_for_memory:
                holder.waits_for_memory = True
                self._waiting[holder] = None
            if before and not keep:
                self._has(holder, 0)
            return False
        if holder.waits_for_memory:
            holder.waits_for_memory = False
            del self._waiting[holder]
        self._has(holder, size)
        return True

    def give_back(self, holder: Holder) -> None:
        """Frees what the holder has: its requests are handled, or will never come."""
        if holder.waits_for_memory:
            holder.waits_for_memory = False
            del self._waiting[holder]
        self._has(holder, 0)

    def _has(self, holder: Holder, size: int) -> None:
        self.reserved_bytes += size - holder.reserved_bytes
        holder.reserved_bytes = size
        self.tight = 0 < self.limit_bytes <= 2 * self.reserved_bytes
        if self._waiting and not self._going_on:
            self._go_on()

    def _go_on(self) -> None:
        """Lets the first ones that wait ask again. What they give back meanwhile lets others go on, here and not within
        their call: they may be thousands."""
        self._going_on = True
        left = AT_ONCE
        try:
            while left and self._waiting and self.reserved_bytes < self.limit_bytes:
                left -= 1
                first, _ = self._waiting.popitem(last=False)
                first.waits_for_memory = False
                first.adjust()
        finally:
            self._going_on = not left
            if not left:
                asyncio.get_running_loop().call_soon(self._go_on)


def shared(total_bytes: int, connections: int, held_bytes: int, unread: Unread | None = None) -> Memory:
    """Returns the memory of `connections` sessions with `total_bytes` in all and at most `held_bytes` each; 0: no
    limit."""
    own = min(held_bytes, total_bytes // 2 // connections) if total_bytes else held_bytes
    return Memory(max(1, total_bytes - own * connections) if total_bytes else 0, own, unread)
