"""Missing internal topics of a streams group: which to create now, and the results.

The front creates them on the connection of the client whose heartbeat needed them, with that client's rights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from sidecar.core.streams.status_texts import Status, with_denial, with_errors

GIVE_UP_MS = 60_000
"""A CreateTopics request counts as lost after this time without an answer."""
DENIED_NAMES = 100
"""Most topics that one member's denial names; others are counted."""


class NewTopic(Struct, frozen=True, gc=False):
    """A topic for CreateTopics. `replication_factor` -1: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Denial:
    """Topics that a member's principal may not create. `more`: the number of others. The member is shown the denial
    until the result of its next request, and makes none until `until_ms`."""

    topics: tuple[str, ...]
    more: int
    until_ms: int


@dataclass(slots=True)
class TopicCreations:
    """CreateTopics requests of one group that are under way, and those that failed. Soft state: a new owner asks again
    and gets TOPIC_ALREADY_EXISTS. All times are monotonic milliseconds.

    Errors are the group's, as at Kafka, where they are the broker's. Denials are the member's: another member's
    principal may have the right."""

    requested: dict[str, int] = field(default_factory=dict)
    """Topic -> the time at which its request counts as lost."""
    errors: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic -> error message, and the time until which it is shown and the topic is not asked for."""
    denials: dict[str, Denial] = field(default_factory=dict)
    """By member id."""
    logged: tuple[str, str] = ("", "")
    """Topic and problem of the last warning."""
    logged_until_ms: int = 0
    """The time until which this warning is not repeated for other members."""

    def ask(self, member_id: str, missing: Mapping[str, NewTopic], now_ms: int) -> tuple[NewTopic, ...]:
        """Returns the topics that this member creates now, and counts them as asked for: one request at a time for each
        topic."""
        self._forget(missing, now_ms)
        denial = self.denials.get(member_id)
        if denial is not None and now_ms < denial.until_ms:
            return ()
        new = tuple(t for name, t in missing.items() if name not in self.requested and name not in self.errors)
        for topic in new:
            self.requested[topic.name] = now_ms + GIVE_UP_MS
        return new

    def failed(self, topic: str, why: str, until_ms: int) -> None:
        self.requested.pop(topic, None)
        self.errors[topic] = (why, until_ms)

    def refused(
        self,
        member_id: str,
        missing: Mapping[str, NewTopic],
        answered: Collection[str],
        denied: Collection[str],
        until_ms: int,
    ) -> None:
        """Records which topics of a member's request its principal may not create, in the order of `missing`. The
        member's denial of topics without an answer stays."""
        for topic in denied:
            self.requested.pop(topic, None)
        before = self.denials.pop(member_id, None)
        kept = set[str]() if before is None else set(before.topics).difference(answered)
        kept.update(denied)
        topics = [t for t in missing if t in kept]  # the topology's own strings, which take no more memory
        if topics:
            until_ms = until_ms if denied or before is None else before.until_ms
            named = tuple(topics[:DENIED_NAMES])
            self.denials[member_id] = Denial(named, len(topics) - len(named), until_ms)

    def drop_member(self, member_id: str) -> None:
        self.denials.pop(member_id, None)

    def explain(self, member_id: str, status: Status, missing: Mapping[str, NewTopic], now_ms: int) -> Status:
        """Returns the status with the reasons that count for this member. As at Kafka a denial stands alone."""
        self._forget(missing, now_ms)
        denial = self.denials.get(member_id)
        denied = [] if denial is None else [t for t in denial.topics if t in missing]
        if denial is not None and denied:
            return with_denial(status, denied, denial.more)
        return with_errors(status, {t: self.errors[t][0] for t in missing if t in self.errors})

    def warns(self, topic: str, problem: str, now_ms: int, until_ms: int) -> bool:
        """Whether a warning of this problem is due: members with the same problem cause one in each interval."""
        if self.logged == (topic, problem) and now_ms < self.logged_until_ms:
            return False
        self.logged, self.logged_until_ms = (topic, problem), until_ms
        return True

    def _forget(self, missing: Mapping[str, NewTopic], now_ms: int) -> None:
        """Drops expired entries, and topics that are not missing any more."""
        for topic in [t for t, until in self.requested.items() if until <= now_ms or t not in missing]:
            del self.requested[topic]
        for topic in [t for t, (_, until) in self.errors.items() if until <= now_ms or t not in missing]:
            del self.errors[topic]
        if not missing:
            self.denials.clear()
