"""Results of writes to the state topic, and the error codes of brokers behind them."""

from __future__ import annotations

from sidecar.core.vocabulary.errors import Code

TOO_LARGE = {Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE}
FENCED = {Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED}
WRITTEN = {Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER}
COORDINATOR_RETRIABLE = {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
    Code.REQUEST_TIMED_OUT,
}
"""Errors of the transaction coordinator."""
RETRIABLE = {
    Code.TOPIC_AUTHORIZATION_FAILED,  # a right that was taken away may be given back
    Code.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that has just started knows no topics yet
    Code.UNKNOWN_TOPIC_ID,
    Code.LEADER_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.KAFKA_STORAGE_ERROR,
}
"""Errors of a partition and its leader."""


class WriteLost(Exception):
    """Raised when appended records may or may not be in the log: the state in memory must be rebuilt."""


class Fenced(WriteLost):
    """Raised when another sidecar owns the partition now."""
