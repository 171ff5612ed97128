"""Commits that were let pass and have not come back: under way to the broker on some connection.

Two commits for one partition may go over two connections: of its former and of its new member, or of one member that
has given up waiting on the first one. So the second waits until the first has ended. If nobody can say any more whether
the first will arrive, it is in doubt until the placeholder has a new member id: then the broker refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sidecar.core.runtime.offset_checks import Place
from sidecar.wire.primitives import ZERO_UUID

K = TypeVar("K")
Topic = str | bytes
"""Its name or its id."""
NO_NAME, NO_ID = "", b""
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
        self._of_place: dict[tuple[str, int, Topic], set[int]] = {}
        """By group, partition, and what a commit has said of the topic (`_said`)."""
        self._last = 0

    def begin(self, group_id: str, member_id: str, places: tuple[Place, ...], way: Way, now_ms: int) -> int:
        """Returns the ticket by which the front will report the end."""
        self._last = ticket = self._last + 1
        self._commits[ticket] = _Commit(group_id, member_id, places, way, now_ms)
        self._of_group.setdefault(group_id, set()).add(ticket)
        for place in places:
            for topic in _said(place):
                self._of_place.setdefault((group_id, place[2], topic), set()).add(ticket)
        return ticket

    def end(self, ticket: int) -> str | None:
        """Returns the group, or None if nobody waits for it any more."""
        found = self._commits.pop(ticket, None)
        if found is None:
            return None
        self._doubtful.discard(ticket)
        _remove(self._of_group, found.group_id, ticket)
        for place in found.places:
            for topic in _said(place):
                _remove(self._of_place, (found.group_id, place[2], topic), ticket)
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
            for topic in _may_be(place)
            for ticket in self._of_place.get((group_id, place[2], topic), ())
            if (self._commits[ticket].member_id, self._commits[ticket].way) != (member_id, way)
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


def _said(place: Place) -> tuple[Topic, Topic]:
    """How a place is found again: by name and by id. "" and b"" stand for places without."""
    name, topic_id, _ = place
    return name, NO_ID if topic_id == ZERO_UUID else topic_id


def _may_be(place: Place) -> tuple[Topic, Topic]:
    """What must have been said of a place that may be the same: the same name or id. One may tell the topic by its
    name, the other by its id: then they may be the same, too."""
    name, topic_id, _ = place
    return name or NO_ID, NO_NAME if topic_id == ZERO_UUID else topic_id


def _remove(index: dict[K, set[int]], key: K, ticket: int) -> None:
    there = index.get(key)
    if there is not None:
        there.discard(ticket)
        if not there:
            del index[key]
