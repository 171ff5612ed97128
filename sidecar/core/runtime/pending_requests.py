"""Requests that wait until they can be handled, and what a takeover reads of the log."""

from __future__ import annotations

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
        """Ids of the groups that have records there."""

    def size(self, partition: int, group_id: str) -> int:
        """How many records this group has."""

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        """The last value of each key of this group, in the order in which a rebuild replays them (`Registry.in_order`);
        None: nothing yet, ask again. Raises InvariantError if one cannot be read. While the group is being loaded
        nobody writes to it."""


@dataclass(slots=True)
class Tally:
    """Requests without an answer, of all owners of one sidecar."""

    open: int = 0


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
        self._held: list[Held] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held)

    def hold(self, held: Held) -> None:
        self._tally.open += 1
        self._held.append(held)

    def again(self, held: Collection[Held]) -> None:
        """They are counted already."""
        self._held += held

    def all(self) -> list[Held]:
        """Takes them out, and goes on counting them."""
        held, self._held = self._held, []
        return held

    def refuse(self, code: Code, now_ms: int | None = None) -> None:
        """Those whose time is over, or all."""
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
