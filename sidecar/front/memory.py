"""How much the requests that are still coming in may take together: Kafka's queued.max.request.bytes.

A request that is decoded is held whole. One that announces more than a session may hold anyway gets its bytes from
here before it is read further; if there are none left, its session waits for another one's to be given back. As in
Kafka's pool, the last one that gets something may go over the limit, so that no request is too large for ever. Nothing
is allocated here: what is kept grows with the bytes that come.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Holder(Protocol):
    """A session."""

    reserved_bytes: int
    waits_for_memory: bool

    def flow(self) -> None: ...


class Memory:
    """`limit_bytes` 0: there is no limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self._waiting: deque[Holder] = deque()

    def take(self, holder: Holder, size: int) -> bool:
        """Returns False if the holder has to wait; its `flow` is called when that may have changed."""
        if holder.reserved_bytes:
            return True
        if self.limit_bytes and self.reserved_bytes >= self.limit_bytes:
            if not holder.waits_for_memory:
                self._waiting.append(holder)
            return False
        holder.reserved_bytes = size
        self.reserved_bytes += size
        return True

    def give_back(self, holder: Holder) -> None:
        """Its request is there, or will never come."""
        self.reserved_bytes -= holder.reserved_bytes
        holder.reserved_bytes = 0
        if holder.waits_for_memory:
            holder.waits_for_memory = False
            self._waiting.remove(holder)
        while self._waiting and self.reserved_bytes < self.limit_bytes:
            first = self._waiting.popleft()
            first.waits_for_memory = False
            first.flow()
