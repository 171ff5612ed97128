"""Commits that were let pass and are not answered: under way to the broker on some connection.

Two commits for one topic partition may go over two connections: of its former and its new member, or of one member that
has given up waiting on the first one. So the second waits until the first has ended. If it is unknown whether the first
will arrive, it is in doubt until the placeholder has a new member id: then the broker refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sidecar.core.runtime.offset_checks import Place
from sidecar.wire.primitives import ZERO_UUID

K = TypeVar("K")
Topic = str | bytes
"""A topic's name or its id."""
NO_NAME, NO_ID = "", b""
TICKETS_A_MS = 1_000
"""More commits than can begin in a millisecond."""
Way = tuple[int, int]
"""A front, and a connection of its clients. A member's commits over one connection keep their order."""


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
        """Group, partition, and topic by name or id as a commit names it (`_topic_keys`) -> tickets."""
        self._last = 0

    def begin(self, group_id: str, member_id: str, places: tuple[Place, ...], way: Way, now_ms: int) -> int:
        """Adds a commit; returns the ticket by which the front will report its end. A front outlives its coordinator,
        and reports to the next one what began under the last. So tickets go with the time: none is given twice."""
        self._last = ticket = max(self._last + 1, now_ms * TICKETS_A_MS)
        self._commits[ticket] = _Commit(group_id, member_id, places, way, now_ms)
        self._of_group.setdefault(group_id, set()).add(ticket)
        for place in places:
            for topic in _topic_keys(place):
                self._of_place.setdefault((group_id, place[2], topic), set()).add(ticket)
        return ticket

    def end(self, ticket: int) -> str | None:
        """Removes a commit; returns its group, or None if the commit was not under way any more."""
        commit = self._commits.pop(ticket, None)
        if commit is None:
            return None
        self._doubtful.discard(ticket)
        _remove(self._of_group, commit.group_id, ticket)
        for place in commit.places:
            for topic in _topic_keys(place):
                _remove(self._of_place, (commit.group_id, place[2], topic), ticket)
        return commit.group_id

    def doubt(self, ticket: int) -> str | None:
        """Puts a commit in doubt; returns its group, or None if it was not under way or in doubt already."""
        commit = self._commits.get(ticket)
        if commit is None or ticket in self._doubtful:
            return None
        self._doubtful.add(ticket)
        return commit.group_id

    def cleared(self, group_id: str) -> None:
        """Ends the group's commits in doubt: from now on the broker refuses them."""
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

    # ---- commits that another request must wait for ---------------------------------------------------------
    def before_commit(self, group_id: str, member_id: str, places: Iterable[Place], way: Way) -> frozenset[int]:
        """Returns the commits for the same partitions by other members or over other connections."""
        return frozenset(
            ticket
            for place in places
            for topic in _may_be(place)
            for ticket in self._of_place.get((group_id, place[2], topic), ())
            if (self._commits[ticket].member_id, self._commits[ticket].way) != (member_id, way)
        )

    def before_fetch(self, group_id: str, member_id: str | None) -> frozenset[int]:
        """Returns all commits of other members: the partitions of the fetch are not known here."""
        of_group = self._of_group.get(group_id)
        if not of_group:
            return frozenset()
        return frozenset(t for t in of_group if member_id is None or self._commits[t].member_id != member_id)

    # ---- commits whose end no front will report -------------------------------------------------------------
    def of_front(self, front: int) -> list[int]:
        return [t for t, c in self._commits.items() if c.way[0] == front]

    def since(self, before_ms: int) -> Iterator[int]:
        """Yields the commits that began before then and are not in doubt yet, in the order of their beginning."""
        for ticket, commit in list(self._commits.items()):
            if commit.begun_ms > before_ms:
                return
            if ticket not in self._doubtful:
                yield ticket


def _topic_keys(place: Place) -> tuple[Topic, Topic]:
    """Returns the topic's keys in the index: its name and its id; "" or b"" where the commit has none."""
    name, topic_id, _ = place
    return name, NO_ID if topic_id == ZERO_UUID else topic_id


def _may_be(place: Place) -> tuple[Topic, Topic]:
    """Returns the keys of commits that may be for the same topic: those with the same name or id. If one names the
    topic and the other has its id, they may be for the same topic, too."""
    name, topic_id, _ = place
    return name or NO_ID, NO_NAME if topic_id == ZERO_UUID else topic_id


def _remove(index: dict[K, set[int]], key: K, ticket: int) -> None:
    tickets = index.get(key)
    if tickets is not None:
        tickets.discard(ticket)
        if not tickets:
            del index[key]
