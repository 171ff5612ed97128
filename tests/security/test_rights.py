"""Sidecars with the rights that `sidecar acls` prints, and nothing more: everything a group needs works. Without
any of them something does not."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.core.errors import Code as Kafka
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, wait_until
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.properties import of
from sidecar.process.rights import Right, own_rights, rights_for_clients_elsewhere, rights_of
from sidecar.wire.generated import offset_delete as od
from tests.clients.conftest import ENV
from tests.security.ground import ACLS_KNOWN_S, ADMIN, Secured

pytestmark = pytest.mark.kafka
Trio = tuple[LocalKafka, Secured]
SIDECAR, LOOKER = "sidecar", "looker"
DENIED = re.compile(r"AUTHORIZATION_FAILED|not authorized|Not authorized", re.IGNORECASE)


def printed(*more: str) -> list[str]:
    result = CliRunner().invoke(app, ["acls", "--bootstrap", "BOOTSTRAP", "--command-config", "ADMIN", *more])
    assert result.exit_code == 0, result.output
    return [line for line in result.output.splitlines() if not line.startswith("#")]


def test_each_right_has_a_command_and_a_reason() -> None:
    result = CliRunner().invoke(app, ["acls", "--principal", "User:x", "--topic", "my state"])
    lines = result.output.splitlines()
    assert len(lines) == 2 * len(rights_of("", ""))
    assert all(reason.startswith("# ") for reason in lines[::2])
    assert all(shlex.split(command)[0] == "kafka-acls.sh" for command in lines[1::2])
    assert "--topic 'my state'" in result.output
    assert CliRunner().invoke(app, ["acls", "--principal", "x"]).exit_code == 2
    both = ["--for-audit", "--for-clients-listener"]
    assert CliRunner().invoke(app, ["acls", "--principal", "User:x", *both]).exit_code == 2


def test_those_of_the_audit() -> None:
    """tests/audit/lake/test_secured.py shows that they are enough, and that each is needed."""
    (line,) = printed("--principal", "User:auditor", "--for-audit")
    given = "--operation Read --operation DescribeConfigs --topic __group_state"
    assert line.endswith(f"--add --allow-principal User:auditor {given}")


def give(kafka: LocalKafka, ground: Secured) -> None:
    """Run the printed commands, as an administrator does."""
    admin = str(ground.file("administrator", ground.java(ADMIN, ground.internal)))
    lines = printed("--principal", f"User:{SIDECAR}")
    lines += printed("--principal", f"User:{LOOKER}", "--for-clients-listener")
    todo = []
    for line in lines:
        words = [{"BOOTSTRAP": kafka.internal, "ADMIN": admin}.get(w, w) for w in shlex.split(line)][1:]
        tool = kafka.tool("org.apache.kafka.tools.AclCommand", *words)
        todo.append(subprocess.Popen(tool.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        if len(todo) == 4:
            finish(todo)
    finish(todo)
    time.sleep(ACLS_KNOWN_S)


def finish(todo: list[subprocess.Popen[str]]) -> None:
    for p in todo:
        out, _ = p.communicate(timeout=180)
        assert p.returncode == 0, out
        assert "Adding ACLs" in out, out
    todo.clear()


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalKafka, Secured]]:
    """Three brokers: an owner is often not where the offsets of its groups are."""
    ground = Secured(tmp_path_factory.mktemp("rights"), users=(SIDECAR, LOOKER))
    own = ground.file("own", ground.java(SIDECAR, ground.internal, "SCRAM-SHA-512"))
    looks = ground.file("looks", ground.java(LOOKER, ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(looks)}
    kafka = ground.start(sidecar_env=env)
    try:
        ground.create(kafka, "orders", 3)
        give(kafka, ground)
        for node in kafka.nodes:
            kafka.start_sidecar(node)
        kafka.wait_ready()
        yield kafka, ground
    finally:
        kafka.stop()


def works(kafka: LocalKafka, client: dict[str, str], group: str, protocol: str, within_s: float = 40) -> None:
    """A member joins, commits, reads what it has committed, leaves."""
    config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 2, **client}
    consumer = Consumer({**config, "group.protocol": protocol, "enable.auto.commit": False})

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        consumer.subscribe(["orders"])
        wait_until("an assignment", assigned, within_s)
        told = consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        assert told is not None
        assert told[0].error is None
        assert consumer.committed([TopicPartition("orders", 0)], 20)[0].offset == 7
    finally:
        consumer.close()


def test_groups_of_both_protocols_with_these_rights_only(trio: tuple[LocalKafka, Secured]) -> None:
    kafka, ground = trio
    client = ground.client(ADMIN, ground.clients, "SCRAM-SHA-256")
    for n in range(6):  # on several owners
        works(kafka, client, f"managed-{n}", "consumer" if n % 2 else "classic")


def test_owners_that_are_not_where_the_offsets_are(trio: tuple[LocalKafka, Secured]) -> None:
    kafka, ground = trio
    client = ground.client(ADMIN, ground.clients, "SCRAM-SHA-256")
    first = kafka.nodes[0]
    assert first.sidecar is not None
    first.sidecar.kill()  # its broker goes on and keeps the offsets
    wait_until("the others to own everything", lambda: owners(kafka) == {2, 3}, 40)
    two = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2, **client})
    try:
        for n in range(6):
            group = f"managed-away-{n}"
            works(kafka, client, group, "consumer" if n % 2 else "classic")
            asked = ConsumerGroupTopicPartitions(group)
            (offsets,) = two.list_consumer_group_offsets([asked]).values()
            found = offsets.result(30)
            assert [(p.partition, p.offset) for p in found.topic_partitions] == [(0, 7)]
            (deleted,) = two.delete_consumer_groups([group]).values()
            deleted.result(30)
    finally:
        kafka.start_sidecar(first)
        kafka.wait_ready()


def test_requests_of_groups_whose_owner_is_elsewhere(trio: Trio) -> None:
    """Commits in transactions, OffsetDelete, and groups that are taken over and given back."""
    kafka, ground = trio
    first = kafka.nodes[0]
    assert first.sidecar is not None
    first.sidecar.kill()
    wait_until("the others to own everything", lambda: owners(kafka) == {2, 3}, 40)
    try:
        for n in range(3):
            assert in_transaction(kafka, ground, f"managed-txn-{n}") == ""
            assert offset_deleted(kafka, ground, f"managed-txn-{n}") == Kafka.NONE
        said = str(ground.file("clients", ground.java(ADMIN, ground.clients, "SCRAM-SHA-256")))
        works(kafka, client_of(ground), "theirs", "classic")
        for verb in ("adopt", "release"):
            words = ["groups", verb, "theirs", "--bootstrap", kafka.bootstrap, "--command-config", said]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
    finally:
        kafka.start_sidecar(first)
        kafka.wait_ready()


def client_of(ground: Secured) -> dict[str, str]:
    return ground.client(ADMIN, ground.clients, "SCRAM-SHA-256")


def in_transaction(kafka: LocalKafka, ground: Secured, group: str) -> str:
    """Commit offset 5 of orders-0 in a transaction; why that did not work, or ""."""
    config = {"bootstrap.servers": kafka.bootstrap, "log_level": 2, **client_of(ground)}
    consumer = Consumer({**config, "group.id": group})
    producer = Producer({**config, "transactional.id": f"of-{group}", "transaction.timeout.ms": 20_000})
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        offsets = [TopicPartition("orders", 0, 5)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)
        return ""
    except KafkaException as exc:
        return str(exc.args[0].str())
    finally:
        consumer.close()


def offset_deleted(kafka: LocalKafka, ground: Secured, group: str) -> int:
    """The error of OffsetDelete for what `in_transaction` has committed."""
    security = of(ground.java(ADMIN, ground.clients, "SCRAM-SHA-256"))
    addresses = [("127.0.0.1", n.sidecar_port) for n in kafka.nodes if n.sidecar is not None and n.sidecar.alive]

    async def ask() -> int:
        cluster = Cluster(addresses, "test", {}, security=security)
        try:
            conn = await cluster.coordinator(group, 0)
            topic = od.OffsetDeleteRequestTopic("orders", [od.OffsetDeleteRequestPartition(0)])
            res = await conn.request(od, "OffsetDelete", od.OffsetDeleteRequest(group, [topic]))
            return int(res.error_code or res.topics[0].partitions[0].error_code)
        finally:
            cluster.close()

    return asyncio.run(ask())


def owners(kafka: LocalKafka) -> set[int]:
    found = kafka.owners(kafka.nodes[1])
    return set(found["owners"]) if found else set()


def test_nobody_was_refused_anything(trio: tuple[LocalKafka, Secured]) -> None:
    kafka, _ = trio
    for node in kafka.nodes:
        assert node.sidecar is not None
        refused = [line for line in node.sidecar.log.read_text().splitlines() if DENIED.search(line)]
        assert refused == []
        assert kafka.problems(node) == []


# ---- each right is needed -------------------------------------------------------------------------------------------
# These tests take the rights of the cluster above away, in this order.
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
One = tuple[str, str, str, bool]
"""Kind, name, operation, and whether the name is a prefix."""


def single(rights: Iterable[Right]) -> list[One]:
    return [(r.kind, r.name, operation, r.prefixed) for r in rights for operation in r.operations]


def named(right: One) -> str:
    return " ".join(right[:3])


def take(trio: Trio, right: One) -> None:
    kafka, ground = trio
    kind, name, operation, _ = right
    ground.take(kafka, SIDECAR, KINDS[kind], name, OPERATIONS[operation])


def give_back(trio: Trio, right: One) -> None:
    kafka, ground = trio
    kind, name, operation, prefixed = right
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    ground.allow(kafka, SIDECAR, [(KINDS[kind], name, OPERATIONS[operation])], pattern)


def denied_since(kafka: LocalKafka, node: Broker, size: int) -> list[str]:
    assert node.sidecar is not None
    return [line for line in node.sidecar.log.read_text()[size:].splitlines() if DENIED.search(line)]


@pytest.fixture
def away(trio: Trio) -> Iterator[Trio]:
    """The first broker has no sidecar."""
    kafka, _ = trio
    first = kafka.nodes[0]
    assert first.sidecar is not None
    first.sidecar.kill()
    wait_until("the others to own everything", lambda: owners(kafka) == {2, 3}, 40)
    yield trio
    kafka.start_sidecar(first)
    kafka.wait_ready()


def refused(kafka: LocalKafka, ground: Secured, operation: str, name: str) -> bool:
    """Whether one of six groups, some of them with offsets at the first broker, is refused what takes this right."""
    for n in range(6):
        group = f"managed-{operation}-{name}-{n}".lower()
        if name == "Delete":
            if offset_deleted(kafka, ground, f"managed-kept-{n}") not in (Kafka.NONE, Kafka.GROUP_ID_NOT_FOUND):
                return True
        elif in_transaction(kafka, ground, group):
            return True
    return False


@pytest.mark.parametrize("right", single(rights_for_clients_elsewhere()), ids=named)
def test_a_right_for_clients_elsewhere_is_needed(away: Trio, right: One) -> None:
    kafka, ground = away
    kind, _, operation, _ = right
    for n in range(6):
        assert in_transaction(kafka, ground, f"managed-kept-{n}") == ""
    take(away, right)
    try:
        if operation == "DescribeConfigs":
            node = kafka.nodes[1]
            assert node.sidecar is not None
            size = len(node.sidecar.log.read_text())
            node.sidecar.stop()
            kafka.start_sidecar(node)
            wait_until("a refusal", lambda: bool(denied_since(kafka, node, size)), 30)
        else:
            assert refused(kafka, ground, kind, operation)
    finally:
        give_back(away, right)
        kafka.wait_ready()


@pytest.mark.parametrize("right", single(own_rights("__group_state", "__group_state_owners")), ids=named)
def test_a_right_of_its_own_is_needed(trio: Trio, right: One) -> None:
    """Where those for clients elsewhere are not given, which include some of them."""
    kafka, ground = trio
    for wide in single(rights_for_clients_elsewhere()):
        with suppress(AssertionError):  # the first of these tests takes them
            take(trio, wide)
    node = kafka.nodes[2]
    assert node.sidecar is not None
    node.sidecar.stop()
    take(trio, right)
    size = len(node.sidecar.log.read_text())
    if right[2] == "Create":
        for n in kafka.nodes:
            assert n.sidecar is not None
            n.sidecar.stop()
        (gone,) = ground.admin(kafka).delete_topics(["__group_state"]).values()
        gone.result(30)
    kafka.start_sidecar(node)
    try:
        if right[:3] == ("topic", "*", "Describe"):
            with pytest.raises(DrillError, match="an assignment"):
                works(kafka, client_of(ground), "managed-blind", "consumer", 10)
        else:
            wait_until("something to be refused", lambda: bool(denied_since(kafka, node, size)), 40)
    finally:
        give_back(trio, right)
        node.sidecar.stop()
        for n in kafka.nodes:
            if n.sidecar is None or not n.sidecar.alive:
                kafka.start_sidecar(n)
        kafka.wait_ready()
