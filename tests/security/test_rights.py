"""Sidecars with the rights that `sidecar acls` prints, and nothing more: everything a group needs works."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.process.rights import rights_of
from tests.clients.conftest import ENV
from tests.security.ground import ACLS_KNOWN_S, ADMIN, Secured

pytestmark = pytest.mark.kafka
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


def works(kafka: LocalKafka, client: dict[str, str], group: str, protocol: str) -> None:
    """A member joins, commits, reads what it has committed, leaves."""
    config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 2, **client}
    consumer = Consumer({**config, "group.protocol": protocol, "enable.auto.commit": False})

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        consumer.subscribe(["orders"])
        wait_until("an assignment", assigned, 40)
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
