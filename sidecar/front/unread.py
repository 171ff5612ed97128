"""Limits the bytes that all sessions keep because clients, or the broker, have not taken them.

A broker makes no second answer for a client that has not taken the first, and neither does the sidecar: a session keeps
one read from the broker, one from the client, and one answer. Thousands of sessions may do so at a time, which needs a
limit.

From half of the limit on, passing bytes come in small pieces (reads.py) and stop where they are not taken, so slow
clients are slow and nothing else. An answer of the sidecar's own is there as a whole. So beyond the limit a client with
such an answer gives way: the one that has not taken its answer for longest, which reads slowest, or not at all.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A session."""

    def abort(self, cause: str) -> None: ...


class Unread:
    """Counts unread bytes of all sessions. `limit_bytes` 0: no limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.tight = False
        """Whether half of the limit is reached."""
        self._kept: dict[Holder, int] = {}
        self._answers: dict[Holder, None] = {}
        """Sessions that keep an answer of the sidecar's own; the one that has done so for longest comes first."""

    def count(self, holder: Holder, size: int, answer: bool) -> None:
        """Takes in the bytes that the holder keeps now. `answer`: an answer of the sidecar's own is among them. Beyond
        the limit, the session that has kept an answer for longest is closed."""
        if not size:
            self.forget(holder)
            return
        if answer:
            self._answers[holder] = None
        else:
            self._answers.pop(holder, None)
        self._counts(size - self._kept.get(holder, 0))
        self._kept[holder] = size
        while self.limit_bytes and self.total_bytes > self.limit_bytes and len(self._answers) > 1:
            first = next(iter(self._answers))
            self.forget(first)
            first.abort("not_read")

    def forget(self, holder: Holder) -> None:
        """Removes a session that keeps nothing any more or is gone."""
        self._answers.pop(holder, None)
        self._counts(-self._kept.pop(holder, 0))

    def _counts(self, more: int) -> None:
        self.total_bytes += more
        self.tight = 0 < self.limit_bytes <= 2 * self.total_bytes
