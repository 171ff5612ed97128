"""Commits that were let pass and have not come back: under way to the broker on some connection.

Two commits for one partition may go over two connections: of its former and of its new member, or of one member that
has given up waiting on the first one. So the second waits until the first has ended. If nobody can say any more whether
the first will arrive, it is in doubt until the placeholder has a new member id: then the broker refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sidecar.core.offsets import Place
from sidecar.wire.primitives import ZERO_UUID

K = TypeVar("K")
Way = tuple[int, int]
"""A front, and a connection of its clients. Commits of a member that come over one keep their order."""


@dataclass(frozen=True, slots=True)
class _Commit:
    group_id: str
    member_id: str
    places: tuple[Place, ...]
    way: Way
    begun_ms: int


class UnderWay:
    def __init__(self) -> None:
        self._commits: dict[int, _Commit] = {}
        self._doubtful: set[int] = set()
        self._of_group: dict[str, set[int]] = {}
        self._of_partition: dict[tuple[str, int], set[int]] = {}
        self._last = 0

    def begin(self, group_id: str, member_id: str, places: tuple[Place, ...], way: Way, now_ms: int) -> int:
        """Returns the ticket by which the front will report the end."""
        self._last = ticket = self._last + 1
        self._commits[ticket] = _Commit(group_id, member_id, places, way, now_ms)
        self._of_group.setdefault(group_id, set()).add(ticket)
        for _, _, partition in places:
            self._of_partition.setdefault((group_id, partition), set()).add(ticket)
        return ticket

    def end(self, ticket: int) -> str | None:
        """Returns the group, or None if nobody waits for it any more."""
        found = self._commits.pop(ticket, None)
        if found is None:
            return None
        self._doubtful.discard(ticket)
        _remove(self._of_group, found.group_id, ticket)
        for _, _, partition in found.places:
            _remove(self._of_partition, (found.group_id, partition), ticket)
        return found.group_id

    def doubt(self, ticket: int) -> str | None:
        """Returns the group, if the commit was under way and not in doubt yet."""
        found = self._commits.get(ticket)
        if found is None or ticket in self._doubtful:
            return None
        self._doubtful.add(ticket)
        return found.group_id

    def cleared(self, group_id: str) -> None:
        """The broker refuses from now on what is in doubt."""
        for ticket in self._of_group.get(group_id, set()) & self._doubtful:
            self.end(ticket)

    def forget(self, group_id: str) -> None:
        for ticket in list(self._of_group.get(group_id, ())):
            self.end(ticket)

    def still(self, tickets: Iterable[int]) -> bool:
        return any(t in self._commits for t in tickets)

    @property
    def open(self) -> int:
        return len(self._commits)

    # ---- what must be waited for ----------------------------------------------------------------------------
    def before_commit(self, group_id: str, member_id: str, places: Iterable[Place], way: Way) -> frozenset[int]:
        """Commits for the same partitions, of other members or over other connections."""
        return frozenset(
            ticket
            for place in places
            for ticket in self._of_partition.get((group_id, place[2]), ())
            if (self._commits[ticket].member_id, self._commits[ticket].way) != (member_id, way)
            and any(_may_be_same(place, other) for other in self._commits[ticket].places)
        )

    def before_fetch(self, group_id: str, member_id: str | None) -> frozenset[int]:
        """Commits of other members; which partitions are fetched is not known here."""
        of_group = self._of_group.get(group_id)
        if not of_group:
            return frozenset()
        return frozenset(t for t in of_group if member_id is None or self._commits[t].member_id != member_id)

    # ---- whose end nobody will report -----------------------------------------------------------------------
    def of_front(self, front: int) -> list[int]:
        return [t for t, c in self._commits.items() if c.way[0] == front]

    def since(self, before_ms: int) -> Iterator[int]:
        """Those that began before then and are not in doubt yet; they are in the order of their beginning."""
        for ticket, commit in list(self._commits.items()):
            if commit.begun_ms > before_ms:
                return
            if ticket not in self._doubtful:
                yield ticket


def _may_be_same(a: Place, b: Place) -> bool:
    """One may tell the topic by its name, the other by its id."""
    if a[2] != b[2]:
        return False
    if a[0] and b[0]:
        return a[0] == b[0]
    if a[1] != ZERO_UUID and b[1] != ZERO_UUID:
        return a[1] == b[1]
    return True


def _remove(index: dict[K, set[int]], key: K, ticket: int) -> None:
    there = index.get(key)
    if there is not None:
        there.discard(ticket)
        if not there:
            del index[key]
