"""A real Apache Kafka with sidecars: in containers where a Docker engine answers, else on the local JVM.

`TEST_BACKEND=local` or `=docker` chooses. Both backends give the same `LocalKafka` interface.
"""

from __future__ import annotations

import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.local import LocalKafka

ENV = {
    "SIDECAR_GROUPS__INCLUDE": '["managed.*"]',
    "SIDECAR_CONSUMER__MIN_HEARTBEAT_INTERVAL_MS": "300",
    "SIDECAR_CONSUMER__HEARTBEAT_INTERVAL_MS": "300",
    "SIDECAR_METADATA_REFRESH_MS": "300",
}


def backend() -> type[LocalKafka]:
    wanted = os.environ.get("TEST_BACKEND", "")
    if wanted != "local":
        from tests.clients.docker_backend import DockerKafka, engine_answers

        if wanted == "docker" or engine_answers():
            return DockerKafka
    return LocalKafka


def make_topic(kafka: LocalKafka, name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, partitions, min(3, kafka.brokers))]).values():
        future.result(timeout=30)
    return name


def produce(kafka: LocalKafka, topic: str, n: int) -> None:
    p = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    for i in range(n):
        p.produce(topic, str(i), str(i))
    assert p.flush(30) == 0
