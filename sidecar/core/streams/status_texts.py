"""The statuses of a streams group: what it lacks, with Kafka's codes and words, and the internal topics to create.

A status comes with error NONE and leaves the members in the group. Source: Kafka's InternalTopicManager and
StreamsGroupHeartbeatResponse.Status; KafkaApis and DefaultAutoTopicCreationManager for failed creations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from msgspec import Struct

SHOWN = 3
"""Topics that a status names."""
GIVE_UP_MS = 60_000
"""A CreateTopics request counts as lost after this time without an answer."""


class StatusCode(IntEnum):
    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
    """Told to v1 only: clients of v0 do not know it."""


class Status(Struct, frozen=True, gc=False):
    code: StatusCode
    detail: str


class NewTopic(Struct, frozen=True, gc=False):
    """`replication_factor` -1: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


def stale_topology(member_epoch: int, group_epoch: int) -> Status:
    return Status(
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {member_epoch} is behind the group's topology epoch {group_epoch}.",
    )


def missing_source_topics(topics: Collection[str]) -> Status:
    return Status(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {summary(sorted(topics))} are missing.")


def incorrectly_partitioned(detail: str) -> Status:
    return Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def missing_internal_topics(topics: Collection[str]) -> Status:
    """`topics` in Kafka's order."""
    return Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {summary(topics)}")


def shutdown_application(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )


INITIAL_DELAY = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
INTERVAL_DELAY = Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")


def missing_client_tags(tags: Iterable[str]) -> Status:
    return Status(
        StatusCode.MISSING_CLIENT_TAGS,
        f"Missing required client tags for rack-aware standby assignment: [{', '.join(tags)}]. "
        "Configure them via 'client.tag.<tagKey>' in your Streams config.",
    )


def summary(topics: Collection[str]) -> str:
    shown = ", ".join([t for t, _ in zip(topics, range(SHOWN), strict=False)])
    return shown if len(topics) <= SHOWN else f"{shown} and {len(topics) - SHOWN} additional topics"


def with_creation(status: Status, unauthorized: Collection[str], failed: Mapping[str, str]) -> Status:
    """Returns a status 3 with the reasons why its topics are missing. `failed`: topic -> error message."""
    detail = status.detail
    if unauthorized:
        detail += f"; Unauthorized to CREATE on topics {', '.join(unauthorized)}."
    if failed:
        shown = ", ".join([f"{t} ({why})" for (t, why), _ in zip(failed.items(), range(SHOWN), strict=False)])
        more = f" and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        detail += f"; Creation failed: {shown}{more}."
    return Status(status.code, detail)


@dataclass(slots=True)
class Creations:
    """CreateTopics requests of one group that are under way, and those that failed. Soft state: a new owner asks again
    and gets TOPIC_ALREADY_EXISTS. All times are monotonic milliseconds."""

    asked: dict[str, int] = field(default_factory=dict)
    """Topic -> the time at which its request counts as lost."""
    errors: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic -> error message, and the time until which it is shown and the topic is not asked for."""
    denied: dict[str, int] = field(default_factory=dict)
    """Topic that the client may not create -> the time until which it is not asked for."""

    def ask(self, missing: Mapping[str, NewTopic], now_ms: int) -> tuple[NewTopic, ...]:
        """Returns the topics to create now, and counts them as asked for: one request at a time for each topic."""
        self._forget(missing, now_ms)
        new = tuple(t for name, t in missing.items() if not self._known(name))
        for topic in new:
            self.asked[topic.name] = now_ms + GIVE_UP_MS
        return new

    def answered(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.asked.pop(topic, None)

    def failed(self, topic: str, why: str, until_ms: int) -> None:
        self.asked.pop(topic, None)
        self.errors[topic] = (why, until_ms)

    def refused(self, topic: str, until_ms: int) -> None:
        """Notes a TOPIC_AUTHORIZATION_FAILED of this topic."""
        self.asked.pop(topic, None)
        self.denied[topic] = until_ms

    def explain(self, status: Status, missing: Mapping[str, NewTopic], now_ms: int) -> Status:
        self._forget(missing, now_ms)
        return with_creation(status, sorted(self.denied), {t: self.errors[t][0] for t in missing if t in self.errors})

    def _known(self, name: str) -> bool:
        return name in self.asked or name in self.errors or name in self.denied

    def _forget(self, missing: Mapping[str, NewTopic], now_ms: int) -> None:
        """Drops expired entries, and topics that are not missing any more."""
        for times in (self.asked, self.denied):
            for topic in [t for t, until in times.items() if until <= now_ms or t not in missing]:
                del times[topic]
        for topic in [t for t, (_, until) in self.errors.items() if until <= now_ms or t not in missing]:
            del self.errors[topic]
