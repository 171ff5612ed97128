"""Requests that wait until they can be handled, and the view of the log that a takeover reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.records import Record
from sidecar.core.vocabulary.errors import TEXT, Code


class LogView(Protocol):
    """The driver's copy of the state topic."""

    def groups(self, partition: int) -> Collection[str]:
        """Ids of the groups that have records in this partition."""

    def size(self, partition: int, group_id: str) -> int:
        """Number of this group's records."""

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        """The last value of each key of this group, in the order in which a rebuild replays them (`Registry.in_order`);
        None: the next value is not available yet. Raises InvariantError if a record cannot be read. No group is written
        to while it is being loaded."""


@dataclass(slots=True)
class Tally:
    """Counts over all owners of one sidecar. `open`: requests without an answer; `loaded_at_once`: groups that were
    loaded within requests since the driver last called `load_next`; `went_on`: requests that went on since the last
    `wake`, after they had waited for a lease."""

    open: int = 0
    loaded_at_once: int = 0
    went_on: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A request that came before its partition was served, or before its group was loaded."""

    token: int
    event: Event
    until_ms: int


class Waiting:
    """The requests that wait for one partition, in their order. Each counts as one without an answer."""

    def __init__(self, tally: Tally, out: list[Command]) -> None:
        self._tally, self._out = tally, out
        self._held: deque[Held] = deque()

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held)

    def hold(self, held: Held) -> None:
        self._tally.open += 1
        self._held.append(held)

    def again(self, held: Collection[Held]) -> None:
        """Holds requests that are counted already."""
        self._held += held

    def take_oldest(self) -> Held:
        """Takes one request out, and counts it no more."""
        self._tally.open -= 1
        return self._held.popleft()

    def all(self) -> list[Held]:
        """Takes all requests out, and keeps them counted."""
        held, self._held = self._held, deque()
        return list(held)

    def refuse(self, code: Code, now_ms: int | None = None) -> None:
        """Refuses the requests whose time is over at `now_ms`, or all if None."""
        for h in self.all():
            if now_ms is None or h.until_ms <= now_ms:
                self.refuse_one(h, code)
            else:
                self._held.append(h)

    def refuse_one(self, h: Held, code: Code) -> None:
        self._tally.open -= 1
        refuse(self._out, h.token, h.event, code)


def refuse(out: list[Command], token: int, event: Event, code: Code) -> None:
    out.append(Reply(token, event.refused(code, TEXT[code])))
