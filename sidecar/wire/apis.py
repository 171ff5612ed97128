"""The table of APIs: what the sidecar does with each, and which versions it serves.

`TERMINATE`: the sidecar answers for managed groups. `REWRITE`: the broker answers and the sidecar changes that answer.
An API that is not in the table passes byte for byte. The versions are those of docs/reference/behaviour.md section 0
(Kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Api(IntEnum):
    PRODUCE = 0
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74


class Decision(StrEnum):
    TERMINATE = "terminated"
    REWRITE = "rewritten"
    PASS = "passed"


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """`brought` marks an API that the sidecar serves even if the broker lacks it or knows fewer of its versions."""

    decision: Decision
    low: int
    high: int
    flexible_from: int
    brought: bool = False


SERVED: dict[int, ApiSpec] = {
    Api.OFFSET_COMMIT: ApiSpec(Decision.TERMINATE, 2, 10, 8),
    Api.OFFSET_FETCH: ApiSpec(Decision.TERMINATE, 1, 10, 6),
    Api.FIND_COORDINATOR: ApiSpec(Decision.REWRITE, 0, 6, 3),
    Api.JOIN_GROUP: ApiSpec(Decision.TERMINATE, 0, 9, 6),
    Api.HEARTBEAT: ApiSpec(Decision.TERMINATE, 0, 4, 4),
    Api.LEAVE_GROUP: ApiSpec(Decision.TERMINATE, 0, 5, 4),
    Api.SYNC_GROUP: ApiSpec(Decision.TERMINATE, 0, 5, 4),
    Api.DESCRIBE_GROUPS: ApiSpec(Decision.TERMINATE, 0, 6, 5),
    Api.LIST_GROUPS: ApiSpec(Decision.REWRITE, 0, 5, 3),
    Api.API_VERSIONS: ApiSpec(Decision.REWRITE, 0, 4, 3),
    Api.TXN_OFFSET_COMMIT: ApiSpec(Decision.TERMINATE, 0, 5, 3),
    Api.DESCRIBE_CONFIGS: ApiSpec(Decision.REWRITE, 1, 4, 4),
    Api.ALTER_CONFIGS: ApiSpec(Decision.REWRITE, 0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: ApiSpec(Decision.REWRITE, 0, 1, 1),
    Api.LIST_CONFIG_RESOURCES: ApiSpec(Decision.REWRITE, 0, 1, 0),
    Api.DELETE_GROUPS: ApiSpec(Decision.TERMINATE, 0, 2, 2),
    Api.OFFSET_DELETE: ApiSpec(Decision.TERMINATE, 0, 0, 32767),
    Api.CONSUMER_GROUP_HEARTBEAT: ApiSpec(Decision.TERMINATE, 0, 1, 0, brought=True),
    Api.CONSUMER_GROUP_DESCRIBE: ApiSpec(Decision.TERMINATE, 0, 1, 0, brought=True),
}

PRODUCE_FLEXIBLE_FROM = 9


def response_flexible(api_key: int, version: int) -> bool:
    """Return whether the response header has tagged fields. That of ApiVersions never has (KIP-511)."""
    return api_key != Api.API_VERSIONS and version >= SERVED[api_key].flexible_from
