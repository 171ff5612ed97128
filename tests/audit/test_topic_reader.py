"""The reader of the state topic, against librdkafka's own mock of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sidecar.audit.errors import AuditError
from sidecar.audit.source import topic as source_topic
from sidecar.audit.source.kafka import TOPIC, KafkaSource

RECORDS = 20


@pytest.fixture
def source() -> Iterator[KafkaSource]:
    """A topic of four partitions."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    writer = Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    for i in range(4 * RECORDS):
        writer.produce(TOPIC, value=b"v", partition=i % 4, timestamp=1_000 + i // 4)
    assert writer.flush(10) == 0
    yield KafkaSource(f"{broker.host}:{broker.port}", TOPIC, {})


def test_the_first_times_of_all_partitions_are_asked_for_at_once(
    source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: the loop took some round trips for each partition, and an offset that was gone meanwhile ended it."""
    assigned = list[int]()

    class Counted(Consumer):
        def assign(self, places: list[Any]) -> None:
            assigned.append(len(places))
            super().assign(places)

    monkeypatch.setattr(source_topic, "Consumer", Counted)
    assert source.bounds() == dict.fromkeys(range(4), (0, RECORDS))
    times = source.first_times({0: (0, RECORDS), 1: (7, RECORDS), 2: (RECORDS, RECORDS), 3: (90, 99)})
    assert (times, assigned) == ({0: 1_000, 1: 1_007}, [4])


def test_a_refused_question_tells_the_right_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Future[Any] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    monkeypatch.setattr(AdminClient, "describe_configs", lambda admin, topics, **options: {0: refused})
    with pytest.raises(AuditError, match="needed: DescribeConfigs of the topic") as raised:
        KafkaSource("h:1", TOPIC, {}).setting("cleanup.policy")
    assert "Read" not in str(raised.value)
