"""`sidecar state`: the state topic in a file, and from the file in another topic, the same record for record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

from sidecar.audit.dump import DumpRecord, read_dump
from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from tests.clients.test_cli import silent

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def call(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["state", *args])
    return done.exit_code, done.output


def empty_topic(kafka: LocalKafka, name: str, partitions: int) -> str:
    new = NewTopic(name, partitions, 1, config={"cleanup.policy": "compact", "max.message.bytes": str(16 << 20)})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # must outlive its answer
    for future in admin.create_topics([new]).values():
        future.result(timeout=30)
    return name


def by_partition(path: Path) -> dict[int, list[DumpRecord]]:
    """Without the offsets: transactions leave markers between records."""
    found: dict[int, list[DumpRecord]] = {}
    for r in read_dump(path):
        r.offset = 0
        found.setdefault(r.partition, []).append(r)
    return found


def made_as(kafka: LocalKafka, topic: str) -> tuple[list[list[int]], dict[str, str]]:
    """The replicas of each partition, and what was set when it was made."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    parts = admin.list_topics(topic, timeout=30).topics[topic].partitions
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(timeout=30)
    own = {e.name: e.value for e in found.values() if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    assert len(own) == 5
    return [parts[p].replicas for p in sorted(parts)], own


def test_a_topic_comes_back_as_it_was(kafka: LocalKafka, tmp_path: Path) -> None:
    where = ("--bootstrap", kafka.bootstrap)
    asyncio.run(silent(kafka.bootstrap, "managed-dumped"))
    first, second = tmp_path / "first.jsonl.gz", tmp_path / "second.jsonl"
    code, said = call("dump", str(first), *where)
    assert code == 0 and "of 50 partitions" in said
    assert any(b"managed-dumped" in (r.key or b"") for r in read_dump(first))

    other = empty_topic(kafka, "restored", 50)
    code, said = call("load", str(first), *where, "--topic", other)
    assert code == 1 and "1 sidecars run" in said and "Stop them first" in said, said
    nobody = (*where, "--owners-group", "a-group-without-members")
    assert call("load", str(first), *nobody)[0] == 1, "the topic in use is not empty"
    code, said = call("load", str(first), *nobody, "--topic", other)
    assert code == 0, said
    assert call("dump", str(second), *where, "--topic", other)[0] == 0
    assert by_partition(first) == by_partition(second), "keys, values, headers, times and order"
    code, said = call("load", str(first), *nobody, "--topic", other)
    assert code == 1 and "is not empty" in said

    code, said = call("load", str(first), *nobody, "--topic", "made-anew", "--create")
    assert code == 0, said
    assert made_as(kafka, "made-anew") == made_as(kafka, "__group_state"), "partitions, replicas and settings"
    code, said = call("load", str(first), *nobody, "--topic", "made-anew", "--create")
    assert code == 1 and "is not empty" in said

    small = empty_topic(kafka, "too-small", 3)
    code, said = call("load", str(first), *nobody, "--topic", small)
    assert code == 2 and ("the topic has 3 partitions" in said or "looked for elsewhere" in said)
    code, said = call("dump", str(tmp_path / "none.jsonl"), *where, "--topic", "no-such-topic")
    assert code == 1 and "no-such-topic" in said
