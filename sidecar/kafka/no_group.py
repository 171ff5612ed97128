"""What a consumer that reads partitions, and is in no group, is told beside them.

librdkafka reads in the name of a group all the same, and asks for its coordinator meanwhile. To who may read the topic
and no group that is refused, and the refusal comes among the records, if reading takes long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def of_partitions(messages: Iterable[Any]) -> list[Any]:
    """Those that concern what is read: records, and errors but this one."""
    from confluent_kafka import KafkaError

    refused = KafkaError.GROUP_AUTHORIZATION_FAILED
    return [m for m in messages if m.error() is None or m.error().code() != refused]
