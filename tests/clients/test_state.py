"""`sidecar state`: the state topic in a file, and from the file in another topic, the same record for record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

from sidecar.audit.source.dump import DumpRecord, read_dump
from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.state.keys import StateKey, decode_key
from tests.clients.ground import ENV
from tests.clients.test_cli import join_and_go_silent

pytestmark = [pytest.mark.tier("all"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A cluster whose sidecar may be killed."""
    with LocalKafka(tmp_path_factory.mktemp("own"), brokers=1, sidecar_env=ENV) as cluster:
        cluster.wait_ready()
        yield cluster


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
    asyncio.run(join_and_go_silent(kafka.bootstrap, "managed-dumped"))
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


def keys_of(path: Path, group: str) -> dict[StateKey, DumpRecord]:
    """The last record of each key of the group."""
    found = {}
    for r in read_dump(path):
        key = decode_key(r.key or b"")
        if key.group_id == group:
            found[key] = r
    return found


def answer(kafka: LocalKafka, group: str) -> str:
    """Joins a group. Returns the error, or ""."""
    try:
        asyncio.run(join_and_go_silent(kafka.bootstrap, group))
    except AssertionError as exc:
        return str(exc)
    return ""


def restart(kafka: LocalKafka) -> None:
    node = kafka.nodes[0]
    assert node.sidecar is not None
    node.sidecar.kill()
    kafka.start_sidecar(node)
    kafka.wait_ready()


@pytest.mark.parametrize("whole", [False, True])
def test_a_group_that_cannot_be_read_is_repaired(tmp_path: Path, whole: bool, own: LocalKafka) -> None:
    kafka, group = own, f"managed-damaged-{whole}"
    where = ("--bootstrap", kafka.bootstrap)
    assert answer(kafka, group) == ""
    refused = call("repair", group, *where, "--yes")
    assert refused[0] == 1 and "can be read: nothing was removed" in refused[1]
    call("dump", str(tmp_path / "before.jsonl"), *where)
    before = keys_of(tmp_path / "before.jsonl", group)
    damaged = next(k for k in before if k.kind == ("group" if whole else "current"))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("__group_state", b"\xc3\x01 is no value", before[damaged].key, before[damaged].partition)
    assert producer.flush(10) == 0
    restart(kafka)
    assert "COORDINATOR_NOT_AVAILABLE" in answer(kafka, group) or "cannot be read" in answer(kafka, group)

    code, said = call("repair", group, *where, *(["--whole"] if whole else []))
    assert code == 1 and "nothing was written" in said and "--yes" in said and damaged.kind in said, said
    code, said = call("repair", group, *where, "--yes", *(["--whole"] if whole else []))
    assert code == 0 and "Restart sidecar 1" in said, said
    call("dump", str(tmp_path / "after.jsonl"), *where)
    gone = {k: r for k, r in keys_of(tmp_path / "after.jsonl", group).items() if r.value is None}
    assert set(gone) == (set(before) if whole else {damaged})
    whys = {(dict(r.headers)["why"] or b"").decode() for r in gone.values()}
    assert len(whys) == 1 and whys.pop().startswith("removed by ")
    restart(kafka)
    assert answer(kafka, group) == ""
