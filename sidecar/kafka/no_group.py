"""Errors about its group that a consumer gets though it only reads partitions.

librdkafka reads in the name of a group all the same, and asks for its coordinator meanwhile. A principal that may read
the topic, but no group, is refused that. The refusal comes among the records, if reading takes long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def of_partitions(messages: Iterable[Any]) -> list[Any]:
    """Returns the messages without that refusal: records, and all other errors."""
    from confluent_kafka import KafkaError

    refused = KafkaError.GROUP_AUTHORIZATION_FAILED
    return [m for m in messages if m.error() is None or m.error().code() != refused]
