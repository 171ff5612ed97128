"""The statuses of a streams group: its problems, with Kafka's codes and words.

A status comes with error NONE and leaves the members in the group. Source: Kafka's InternalTopicManager and
StreamsGroupHeartbeatResponse.Status; KafkaApis and DefaultAutoTopicCreationManager for failed creations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum

from msgspec import Struct

SHOWN = 3
"""Most topics that a status names."""


class StatusCode(IntEnum):
    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
    """Sent in v1 only: clients of v0 do not know it."""


class Status(Struct, frozen=True, gc=False):
    code: StatusCode
    detail: str


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
    """Returns the status of missing topics, which `topics` has in Kafka's order."""
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


def with_denial(status: Status, topics: Iterable[str], more: int) -> Status:
    """Returns a status 3 with the topics that the member's principal may not create, and `more` others."""
    others = f" and {more} more" if more else ""
    return Status(status.code, f"{status.detail}; Unauthorized to CREATE on topics {', '.join(topics)}{others}.")


def with_errors(status: Status, failed: Mapping[str, str]) -> Status:
    """Returns a status 3 with the reasons why its topics are missing. `failed`: topic -> error message."""
    if not failed:
        return status
    shown = ", ".join([f"{t} ({why})" for (t, why), _ in zip(failed.items(), range(SHOWN), strict=False)])
    more = f" and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    return Status(status.code, f"{status.detail}; Creation failed: {shown}{more}.")
