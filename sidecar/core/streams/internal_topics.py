"""Missing internal topics of a streams group: which to create now, and the results.

The front creates them on the connection of the client whose heartbeat needed them, with that client's rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from sidecar.core.streams.status_texts import Status, with_creation

GIVE_UP_MS = 60_000
"""A CreateTopics request counts as lost after this time without an answer."""


class NewTopic(Struct, frozen=True, gc=False):
    """A topic for CreateTopics. `replication_factor` -1: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class TopicCreations:
    """CreateTopics requests of one group that are under way, and those that failed. Soft state: a new owner asks again
    and gets TOPIC_ALREADY_EXISTS. All times are monotonic milliseconds."""

    requested: dict[str, int] = field(default_factory=dict)
    """Topic -> the time at which its request counts as lost."""
    errors: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic -> error message, and the time until which it is shown and the topic is not asked for."""
    denied: dict[str, int] = field(default_factory=dict)
    """Topic that the client may not create -> the time until which it is not asked for."""

    def ask(self, missing: Mapping[str, NewTopic], now_ms: int) -> tuple[NewTopic, ...]:
        """Returns the topics to create now, and counts them as asked for: one request at a time for each topic."""
        self._forget(missing, now_ms)
        new = tuple(t for name, t in missing.items() if not self._was_asked(name))
        for topic in new:
            self.requested[topic.name] = now_ms + GIVE_UP_MS
        return new

    def answered(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.requested.pop(topic, None)

    def failed(self, topic: str, why: str, until_ms: int) -> None:
        self.requested.pop(topic, None)
        self.errors[topic] = (why, until_ms)

    def refused(self, topic: str, until_ms: int) -> None:
        """Records a TOPIC_AUTHORIZATION_FAILED of this topic."""
        self.requested.pop(topic, None)
        self.denied[topic] = until_ms

    def explain(self, status: Status, missing: Mapping[str, NewTopic], now_ms: int) -> Status:
        self._forget(missing, now_ms)
        return with_creation(status, sorted(self.denied), {t: self.errors[t][0] for t in missing if t in self.errors})

    def _was_asked(self, name: str) -> bool:
        return name in self.requested or name in self.errors or name in self.denied

    def _forget(self, missing: Mapping[str, NewTopic], now_ms: int) -> None:
        """Drops expired entries, and topics that are not missing any more."""
        for times in (self.requested, self.denied):
            for topic in [t for t, until in times.items() if until <= now_ms or t not in missing]:
                del times[topic]
        for topic in [t for t, (_, until) in self.errors.items() if until <= now_ms or t not in missing]:
            del self.errors[topic]
