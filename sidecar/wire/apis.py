"""The table of APIs: what the sidecar does with each, which versions it serves, and whose groups it concerns.

`TERMINATE`: the sidecar answers for managed groups. `REWRITE`: the broker answers and the sidecar changes that answer.
An API that is not in the table passes byte for byte, and so does Metadata at most brokers (PASSING). The versions are
all that a Kafka from 2.8 to 4.4 serves, so that a client may use here whatever the broker behind the sidecar serves;
each broker has a part of them. This is the only such table: proxy, api, the metrics and the generator of the codec read
it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93


class Decision(StrEnum):
    TERMINATE = "terminated"
    REWRITE = "rewritten"
    PASS = "passed"


class Kind(StrEnum):
    """The kind of group that an API is about."""

    NONE = "none"
    ANY = "any"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One row of the table. `brought`: the sidecar serves the API even if the broker lacks it or knows fewer of its
    versions, if it coordinates groups of this kind."""

    decision: Decision
    kind: Kind
    low: int
    high: int
    flexible_from: int
    note: str
    brought: bool = False


TERMINATE, REWRITE = Decision.TERMINATE, Decision.REWRITE
OWN_IDS = "It passes, except for the transactional ids of the sidecars."
SHARE_STATE = "The broker alters its share state, once the placeholder has left."
NEVER = 32767
"""Value of `flexible_from` for an API whose versions have no tagged fields."""
SERVED: dict[int, ApiSpec] = {
    Api.OFFSET_COMMIT: ApiSpec(TERMINATE, Kind.ANY, 0, 10, 8, "The member is checked here, the broker stores."),
    Api.OFFSET_FETCH: ApiSpec(TERMINATE, Kind.ANY, 0, 10, 6, "The member is checked here, the broker reads."),
    Api.FIND_COORDINATOR: ApiSpec(REWRITE, Kind.ANY, 0, 6, 3, "It names the broker beside the group's owner."),
    Api.JOIN_GROUP: ApiSpec(TERMINATE, Kind.CLASSIC, 0, 9, 6, "The coordinator answers it."),
    Api.HEARTBEAT: ApiSpec(TERMINATE, Kind.CLASSIC, 0, 4, 4, "The coordinator answers it."),
    Api.LEAVE_GROUP: ApiSpec(TERMINATE, Kind.CLASSIC, 0, 5, 4, "The coordinator answers it."),
    Api.SYNC_GROUP: ApiSpec(TERMINATE, Kind.CLASSIC, 0, 5, 4, "The coordinator answers it."),
    Api.DESCRIBE_GROUPS: ApiSpec(TERMINATE, Kind.CLASSIC, 0, 6, 5, "The coordinator answers it."),
    Api.LIST_GROUPS: ApiSpec(REWRITE, Kind.ANY, 0, 5, 3, "The groups owned here stand beside the broker's."),
    Api.METADATA: ApiSpec(REWRITE, Kind.NONE, 0, 13, 9, "It passes; old brokers are not asked by topic id."),
    Api.API_VERSIONS: ApiSpec(REWRITE, Kind.NONE, 0, 5, 3, "It tells the versions that broker and sidecar serve."),
    Api.TXN_OFFSET_COMMIT: ApiSpec(TERMINATE, Kind.ANY, 0, 6, 3, "The member is checked here, the broker stores."),
    Api.DESCRIBE_CONFIGS: ApiSpec(REWRITE, Kind.NONE, 0, 4, 4, "It tells settings of managed groups, too."),
    Api.ALTER_CONFIGS: ApiSpec(REWRITE, Kind.NONE, 0, 2, 2, "Settings of managed groups are kept here."),
    Api.INCREMENTAL_ALTER_CONFIGS: ApiSpec(REWRITE, Kind.NONE, 0, 1, 1, "Settings of managed groups are kept here."),
    Api.LIST_CONFIG_RESOURCES: ApiSpec(REWRITE, Kind.NONE, 0, 1, 0, "It names managed groups that have settings, too."),
    Api.SASL_AUTHENTICATE: ApiSpec(Decision.PASS, Kind.NONE, 0, 2, 2, "Its name is for records of administrators."),
    Api.DELETE_GROUPS: ApiSpec(TERMINATE, Kind.ANY, 0, 3, 2, "State here and offsets at the broker go together."),
    Api.OFFSET_DELETE: ApiSpec(TERMINATE, Kind.ANY, 0, 0, NEVER, "Offsets of subscribed topics stay."),
    Api.CONSUMER_GROUP_HEARTBEAT: ApiSpec(
        TERMINATE, Kind.CONSUMER, 0, 1, 0, "The coordinator answers it.", brought=True
    ),
    Api.CONSUMER_GROUP_DESCRIBE: ApiSpec(
        TERMINATE, Kind.CONSUMER, 0, 1, 0, "The coordinator answers it.", brought=True
    ),
    Api.SHARE_GROUP_HEARTBEAT: ApiSpec(TERMINATE, Kind.SHARE, 0, 1, 0, "The coordinator answers it."),
    Api.SHARE_GROUP_DESCRIBE: ApiSpec(TERMINATE, Kind.SHARE, 0, 1, 0, "The coordinator answers it."),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ApiSpec(TERMINATE, Kind.SHARE, 0, 1, 0, "The group's broker reads them."),
    Api.ALTER_SHARE_GROUP_OFFSETS: ApiSpec(TERMINATE, Kind.SHARE, 0, 0, 0, SHARE_STATE),
    Api.DELETE_SHARE_GROUP_OFFSETS: ApiSpec(TERMINATE, Kind.SHARE, 0, 0, 0, SHARE_STATE),
    Api.STREAMS_GROUP_HEARTBEAT: ApiSpec(TERMINATE, Kind.STREAMS, 0, 1, 0, "The coordinator answers it.", brought=True),
    Api.STREAMS_GROUP_DESCRIBE: ApiSpec(TERMINATE, Kind.STREAMS, 0, 1, 0, "The coordinator answers it.", brought=True),
    Api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ApiSpec(
        TERMINATE, Kind.STREAMS, 0, 0, 0, "Descriptions of topologies are not kept here."
    ),
    Api.INIT_PRODUCER_ID: ApiSpec(REWRITE, Kind.NONE, 0, 6, 2, OWN_IDS),
    Api.ADD_PARTITIONS_TO_TXN: ApiSpec(REWRITE, Kind.NONE, 0, 5, 3, OWN_IDS),
    Api.ADD_OFFSETS_TO_TXN: ApiSpec(REWRITE, Kind.NONE, 0, 4, 3, OWN_IDS),
    Api.END_TXN: ApiSpec(REWRITE, Kind.NONE, 0, 5, 3, OWN_IDS),
    Api.DESCRIBE_TRANSACTIONS: ApiSpec(REWRITE, Kind.NONE, 0, 0, 0, OWN_IDS),
    Api.LIST_TRANSACTIONS: ApiSpec(REWRITE, Kind.NONE, 0, 2, 0, OWN_IDS),
}

IDS_SINCE, BY_ID = 10, 12
"""Versions of Metadata: the first that returns ids of topics, and the first that takes them."""
PASSING: dict[int, ApiSpec] = {key: spec for key, spec in SERVED.items() if key != Api.METADATA}
"""APIs that the sidecar looks into. All of SERVED for brokers that return topic ids and take none."""
PRODUCE_FLEXIBLE_FROM = 9
ALONE = frozenset(
    (
        Api.OFFSET_FETCH,
        Api.METADATA,
        Api.DESCRIBE_GROUPS,
        Api.CONSUMER_GROUP_DESCRIBE,
        Api.SHARE_GROUP_DESCRIBE,
        Api.STREAMS_GROUP_DESCRIBE,
        Api.DESCRIBE_SHARE_GROUP_OFFSETS,
        Api.LIST_GROUPS,
        Api.DESCRIBE_CONFIGS,
        Api.LIST_CONFIG_RESOURCES,
        Api.DESCRIBE_TRANSACTIONS,
        Api.LIST_TRANSACTIONS,
    )
)
"""APIs of which a small request may have a large answer."""


def looked_into(versions: Mapping[int, tuple[int, int]] | None) -> dict[int, ApiSpec]:
    """Returns the APIs to look into on a connection to a broker with these versions; None: its versions are unknown."""
    highest = (versions or {}).get(Api.METADATA, (0, BY_ID))[1]
    return SERVED if IDS_SINCE <= highest < BY_ID else PASSING


def response_flexible(api_key: int, version: int) -> bool:
    """Returns whether the response header has tagged fields. That of ApiVersions never has (KIP-511)."""
    return api_key != Api.API_VERSIONS and version >= SERVED[api_key].flexible_from


def message_name(api_key: int) -> str:
    """Returns the name that Kafka's message JSON gives to this API, for example OffsetCommit."""
    return "".join(word.title() for word in Api(api_key).name.split("_"))
