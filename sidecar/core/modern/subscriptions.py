"""Counted subscriptions of a group's members: a member that joins with a known subscription costs O(1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.core.runtime.member_limits import bytes_of_names, bytes_of_record
from sidecar.core.vocabulary.topics import TopicImage


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """One subscription, shared by all members that have it; compared by identity."""

    names: tuple[str, ...]
    regex: str | None
    record_bytes: int
    """Bytes of the subscription in each member's record."""


class Subscriptions:
    def __init__(self) -> None:
        self.of: dict[str, Subscription] = {}
        """Subscription by member id."""
        self._by_key: dict[tuple[tuple[str, ...], str | None], Subscription] = {}
        self._members: Counter[Subscription] = Counter()
        self._regex_members: Counter[str] = Counter()
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._names: Counter[str] = Counter()
        self._frozen: frozenset[str] | None = frozenset()
        self._hash: tuple[int, frozenset[str] | None, int] = (0, None, 0)
        """Serial of an image, names, and their hash."""
        self.held_bytes = 0
        """Bytes of the different subscriptions, and of the record of each member."""

    # ---- members ------------------------------------------------------------------------------------------
    def put(self, member_id: str, names: tuple[str, ...], regex: str | None) -> Subscription:
        key = (names, regex)
        sub = self._by_key.get(key)
        if sub is None:
            sub = self._by_key[key] = Subscription(names, regex, bytes_of_record(names, regex))
            self.held_bytes += bytes_of_names(names, sub.record_bytes)
            self._add(names)
        if self.of.get(member_id) is sub:
            return sub
        self._members[sub] += 1
        self.held_bytes += sub.record_bytes
        if regex:
            self._regex_members[regex] += 1
            if self._regex_members[regex] == 1:
                self._add(self._resolved.get(regex, ()))
        self.drop(member_id)
        self.of[member_id] = sub
        return sub

    def drop(self, member_id: str) -> None:
        sub = self.of.pop(member_id, None)
        if sub is None:
            return
        self._members[sub] -= 1
        self.held_bytes -= sub.record_bytes
        if sub.regex:
            self._regex_members[sub.regex] -= 1
            if not self._regex_members[sub.regex]:
                del self._regex_members[sub.regex]
                self._remove(self._resolved.get(sub.regex, ()))
        if not self._members[sub]:
            del self._members[sub], self._by_key[(sub.names, sub.regex)]
            self.held_bytes -= bytes_of_names(sub.names, sub.record_bytes)
            self._remove(sub.names)

    def more_bytes(self, names: tuple[str, ...], regex: str | None, member_id: str) -> int:
        """Returns the bytes that this subscription adds, for a present or a new member."""
        had, known = self.of.get(member_id), self._by_key.get((names, regex))
        more = -had.record_bytes if had is not None else 0
        if known is not None:
            return more + known.record_bytes
        record_bytes = bytes_of_record(names, regex)
        return more + record_bytes + bytes_of_names(names, record_bytes)

    # ---- regular expressions ------------------------------------------------------------------------------
    def resolved(self, regex: str, topics: tuple[str, ...]) -> None:
        """Sets the topics that an expression matches; none: it is unresolved (KIP-1263)."""
        if regex in self._regex_members:
            self._add(topics)
            self._remove(self._resolved.get(regex, ()))
        if topics:
            self._resolved[regex] = topics
        else:
            self._resolved.pop(regex, None)

    def regex_users(self, regex: str) -> int:
        return self._regex_members.get(regex, 0)

    def regex_count(self) -> int:
        return len(self._regex_members)

    def regexes(self) -> list[str]:
        return sorted(self._regex_members)

    # ---- names ----------------------------------------------------------------------------------------------
    def topics(self) -> frozenset[str]:
        """Returns the names that any member subscribes to; the same object as long as nothing changed."""
        if self._frozen is None:
            self._frozen = frozenset(self._names)
        return self._frozen

    def hash_over(self, image: TopicImage) -> int:
        """Returns the hash of the metadata of all these topics, as `image` has them."""
        serial, names, value = self._hash
        topics = self.topics()
        if serial != image.serial or names is not topics:
            value = image.hash_of(topics)
            self._hash = (image.serial, topics, value)
        return value

    def _add(self, names: Iterable[str]) -> None:
        count = self._names
        for name in names:
            count[name] += 1
            if count[name] == 1:
                self._frozen = None

    def _remove(self, names: Iterable[str]) -> None:
        count = self._names
        for name in names:
            count[name] -= 1
            if not count[name]:
                del count[name]
                self._frozen = None
