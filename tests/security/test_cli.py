"""Commands on a secured cluster, with Kafka's own properties; and what the doctor says of a sidecar's rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, Secured, secret_of
from tests.security.test_own import consumed
from tests.security.test_rights import SIDECAR, give

pytestmark = pytest.mark.tier("all")
GROUP = "managed-cli"
RIGHTS, WRITERS = "rights of the sidecars", "writers of the state topic"


@dataclass
class SecuredCluster:
    kafka: LocalKafka
    ground: Secured
    clients: Path
    inside: Path

    def run(self, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, result.output
        assert secret_of(ADMIN) not in result.output
        return result.stdout

    def through(self, *words: str, code: int = 0) -> str:
        """At the sidecar."""
        return self.run(*words, "--bootstrap", self.kafka.bootstrap, "--command-config", str(self.clients), code=code)

    def direct(self, *words: str, code: int = 0) -> str:
        """At the broker's own listener."""
        return self.run(*words, "--bootstrap", self.kafka.internal, "--command-config", str(self.inside), code=code)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    ground = Secured(tmp_path_factory.mktemp("cli"), users=(SIDECAR, "looker"))
    clients = ground.file("clients", ground.java(ADMIN, ground.clients, "SCRAM-SHA-512"))
    inside = ground.file("inside", ground.java(ADMIN, ground.internal, "SCRAM-SHA-256"))
    own = ground.file("own", ground.java(SIDECAR, ground.internal, "SCRAM-SHA-512"))
    looks = ground.file("looks", ground.java("looker", ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(looks)}
    kafka = ground.start(brokers=1, sidecar_env=env)
    try:
        ground.create(kafka, "orders", 3)
        give(kafka, ground)
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
        consumed(kafka, ground.client(ADMIN, ground.clients), GROUP, "orders")
        yield SecuredCluster(kafka, ground, clients, inside)
    finally:
        kafka.stop()


def test_commands_through_the_sidecar_and_past_it(place: SecuredCluster) -> None:
    listed = place.through("groups", "list", "-o", "json").splitlines()
    assert GROUP in {json.loads(row)["group"] for row in listed}
    for ask in (place.through, place.direct):
        assert "group epoch" in ask("groups", "history", GROUP)
        assert "1" in ask("owner", GROUP)
    assert GROUP in place.through("groups", "explain", GROUP)


def test_a_wrong_password_is_told_with_what_to_look_at(place: SecuredCluster) -> None:
    said = place.ground.java(ADMIN, place.ground.clients)
    login = str(said["sasl.jaas.config"]).replace(secret_of(ADMIN), "another")
    wrong = place.ground.file("wrong", {**said, "sasl.jaas.config": login})
    words = ("groups", "list", "--bootstrap", place.kafka.bootstrap, "--command-config", str(wrong))
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 3
    assert "--command-config" in result.stderr


def checked(place: SecuredCluster, name: str) -> dict[str, Any]:
    node = place.kafka.nodes[0]
    words = ["doctor", "--bootstrap", place.kafka.bootstrap, "--admin", f"127.0.0.1:{node.admin_port}"]
    words += ["--principal", f"User:{SIDECAR}", "--command-config", str(place.clients), "-o", "json"]
    found = map(json.loads, CliRunner().invoke(app, words).stdout.splitlines())
    (check,) = [c for c in found if c["name"] == name]
    return dict(check)


def test_the_doctor_misses_a_right_that_was_taken_away(place: SecuredCluster) -> None:
    assert checked(place, RIGHTS)["status"] == "ok"
    what = ResourceType.TOPIC, "__group_state", ResourcePatternType.LITERAL
    taken = AclBindingFilter(*what, f"User:{SIDECAR}", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    assert len(place.ground.delete_acls(place.kafka, [taken])) == 1
    found = checked(place, RIGHTS)
    assert found["status"] == "fail"
    assert "Write of topic __group_state" in found["finding"]
    who = f"--add --allow-principal User:{SIDECAR} --operation Write --topic __group_state"
    assert found["remedy"] == f"kafka-acls.sh --bootstrap-server {place.kafka.bootstrap} {who}"
    given(place, SIDECAR, "127.0.0.1")
    found = checked(place, RIGHTS)
    assert found["status"] == "warn" and "from some hosts only: Write of topic __group_state" in found["finding"]
    given(place, SIDECAR, "*")
    assert checked(place, RIGHTS)["status"] == "ok"


def given(place: SecuredCluster, user: str, host: str) -> None:
    """Write of the state topic, from this host."""
    what = ResourceType.TOPIC, "__group_state", ResourcePatternType.LITERAL
    binding = AclBinding(*what, f"User:{user}", host, AclOperation.WRITE, AclPermissionType.ALLOW)
    place.ground.create_acls(place.kafka, [binding])


def test_the_doctor_names_who_else_may_write_the_state(place: SecuredCluster) -> None:
    assert checked(place, WRITERS)["status"] == "ok"
    given(place, "stranger", "10.0.0.1")
    found = checked(place, WRITERS)
    assert found["status"] == "warn" and found["finding"].startswith("User:stranger may write to __group_state")
