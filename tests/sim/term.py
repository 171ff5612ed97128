"""A sidecar's terms: its attempts at owning partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Record
from tests.sim.world import PARTITIONS


class Outcome(Enum):
    DONE = "done"
    FENCED = "fenced"
    LOST = "lost"
    """The batch may be in the log or not."""


@dataclass(slots=True)
class Term:
    """One attempt at owning a partition: what it has written and what it still has to write."""

    attempt: int = 0
    epoch: int = -1
    seen: int = 0
    """The end of the log when the fence was set."""
    confirmed: bool = False
    """Whether the brokers have confirmed the map since the fence."""
    serve: Callable[[], None] | None = None
    """The rest of the takeover, which waits for that."""
    since_ms: int = 0
    """The time at which serving began."""
    queue: list[tuple[int, list[Record]]] = field(default_factory=list)
    sending: bool = False
    renewing: bool = False
    written: dict[str, int] = field(default_factory=dict)
    """Group -> serial of the last batch with a record of it."""
    acked: int = 0
    """Serial of the last batch that is committed."""
    compared: tuple[int, int] = (-1, -1)
    """Length of the log and changes of the live state when they were last compared."""


class Copy:
    """A sidecar's copy of the log, as it was at the last takeover."""

    def __init__(self) -> None:
        self.values: list[dict[str, list[Record]]] = [{} for _ in range(PARTITIONS)]

    def groups(self, partition: int) -> Collection[str]:
        return self.values[partition].keys()

    def size(self, partition: int, group_id: str) -> int:
        return len(self.values[partition].get(group_id, ()))

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        yield None
        yield from REGISTRY.in_order(self.values[partition][group_id])
