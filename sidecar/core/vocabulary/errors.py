"""Kafka error codes as values (clients/.../protocol/Errors.java), and the exception with which a handler answers
one."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REPLICA_ASSIGNMENT = 39
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128
    STREAMS_INVALID_TOPOLOGY = 130


MESSAGE_CHARS = 8_000
"""Longest error message, in characters of up to four bytes each."""
TEXT: dict[Code, str] = {
    Code.UNSUPPORTED_VERSION: "The consumer group protocol is not enabled for this group.",
    Code.NOT_COORDINATOR: "This is not the correct coordinator.",
    Code.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Code.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
}
"""Kafka's messages of refusals that concern no member. Other codes have no text, like those of missing rights."""


def name_of(code: int) -> str:
    """Returns the name of any code that a broker may send, also of those not listed here."""
    return Code(code).name if code in Code._value2member_map_ else f"error {code}"


def fitting(message: str) -> str:
    """Returns the message, shortened to fit into a string of Kafka. An id in it may take 32,767 bytes alone."""
    return message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}..."


class CoordinatorError(Exception):
    """An error answer to a client, not a fault of the sidecar: the handler stops and the reply carries `code` and
    `message`. `limit`: the label of `sidecar_members_refused`, if a limit is reached."""

    def __init__(self, code: Code, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.limit = limit
        self.message = fitting(message)


class InvariantError(Exception):
    """A contradiction in the state. The shard's driver must stop the shard and log the traceback."""
