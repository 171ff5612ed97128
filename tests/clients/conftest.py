"""A real Apache Kafka with sidecars: in containers where a Docker engine answers, else on the local JVM.

`TEST_BACKEND=local` or `=docker` chooses. Both backends give the same `LocalKafka` interface.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
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


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker whose only listener stands behind the sidecar: clients, the broker and the sidecar all use it."""
    cluster = backend()(tmp_path_factory.mktemp("one"), brokers=1, front="one", sidecar_env=ENV)
    with cluster:
        cluster.wait_ready()
        yield cluster


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers, three sidecars. Always on the local JVM: its tests stop and kill processes."""
    cluster = LocalKafka(tmp_path_factory.mktemp("trio"), sidecar_env=ENV)
    with cluster:
        cluster.wait_ready()
        yield cluster


@pytest.fixture(scope="session")
def topic(kafka: LocalKafka) -> str:
    return make_topic(kafka, "orders", 6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
