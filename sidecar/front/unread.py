"""How much all clients together may leave unread of what they were answered, beyond what each may.

A broker makes no second answer for a client that has not taken the first. So does the sidecar, about: a connection
holds `unread_bytes`, one read from the broker and one answer. Thousands of connections may ask for a large answer each,
so what they hold beyond their own part has a limit. Beyond it the client gives way that has held some for longest: it
reads slowest, or not at all, and no other client waits for it.
"""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 1 << 18
"""One read from the broker may bring so much after the client has taken no more."""


class Holder(Protocol):
    """A session."""

    def abort(self, cause: str) -> None: ...


class Unread:
    """`limit_bytes`: of what is beyond the parts of their own, 0: there is no limit; `unread_bytes`: of each session,
    before it is full."""

    def __init__(self, limit_bytes: int, unread_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.own_bytes = unread_bytes + READ_BYTES
        self.total_bytes = 0
        self._beyond: dict[Holder, int] = {}
        """The one first that has come to its limit first."""

    def count(self, holder: Holder, size: int) -> None:
        """The holder's client has so much to read."""
        beyond = size - self.own_bytes
        if beyond <= 0:
            self.forget(holder)
            return
        self.total_bytes += beyond - self._beyond.get(holder, 0)
        self._beyond[holder] = beyond
        while self.limit_bytes and self.total_bytes > self.limit_bytes and len(self._beyond) > 1:
            first = next(iter(self._beyond))
            self.forget(first)
            first.abort("not_read")

    def forget(self, holder: Holder) -> None:
        """Call this when its client has read all but its own part, or is gone."""
        self.total_bytes -= self._beyond.pop(holder, 0)
