"""The sidecar's own clients on each kind of listener, with Kafka's own properties."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, free_ports, wait_until
from sidecar.kafka.net import BrokerConnection, ConnectionLost, NotAuthenticated
from sidecar.kafka.properties import of
from sidecar.kafka.security import Security
from sidecar.wire.generated import list_groups as lg
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, MARK, MECHANISMS, Secured, assert_no_secret

pytestmark = pytest.mark.tier("all")
REAUTH_MS = 3_000
WRONG = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": MARK,
}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("own"), reauth_ms=REAUTH_MS, authorizer=False)


@pytest.fixture(scope="module")
def kafka(ground: Secured) -> Iterator[LocalKafka]:
    """Yields a broker without ACLs that allow anything: these tests are about who one is. Clients go to the broker
    itself."""
    started = ground.start(brokers=1)
    try:
        yield started
    finally:
        started.stop()


def security(ground: Secured, user: str, protocol: str, mechanism: str, **more: str) -> Security:
    return of({**ground.java(user, protocol, mechanism), **more})


async def list_groups_code(port: int, how: Security) -> int:
    conn = await BrokerConnection.open("127.0.0.1", port, "test", timeout_s=10, security=how)
    try:
        res = await conn.request(lg, "ListGroups", lg.ListGroupsRequest())
        return int(res.error_code)
    finally:
        conn.close()


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m != "SCRAM-SHA-256"])
def test_every_mechanism_on_both_listeners(kafka: LocalKafka, ground: Secured, mechanism: str) -> None:
    node = kafka.nodes[0]
    for port, protocol in ((node.clients_port, "SASL_PLAINTEXT"), (node.internal_port, "SASL_SSL")):
        assert asyncio.run(list_groups_code(port, security(ground, ADMIN, protocol, mechanism))) == Code.NONE


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_said_so(kafka: LocalKafka, ground: Secured, mechanism: str) -> None:
    login = 'X required username="admin" password="no";'
    how = security(ground, ADMIN, "SASL_PLAINTEXT", mechanism, **{"sasl.jaas.config": login})
    with pytest.raises(NotAuthenticated, match=f"refuses SASL_PLAINTEXT {mechanism} as admin: Authentication failed"):
        asyncio.run(list_groups_code(kafka.nodes[0].clients_port, how))


def test_listeners_that_speak_something_else_are_named(kafka: LocalKafka, ground: Secured) -> None:
    node = kafka.nodes[0]
    with pytest.raises(NotAuthenticated, match=r"does not speak TLS: look at security\.protocol"):
        asyncio.run(list_groups_code(node.clients_port, security(ground, ADMIN, "SASL_SSL", "PLAIN")))
    stranger = Secured(ground.folder / "stranger")
    with pytest.raises(NotAuthenticated, match="certificate is not accepted"):
        asyncio.run(list_groups_code(node.internal_port, security(stranger, ADMIN, "SASL_SSL", "PLAIN")))
    with pytest.raises(ConnectionLost):
        asyncio.run(list_groups_code(node.internal_port, security(ground, ADMIN, "SASL_PLAINTEXT", "PLAIN")))


def test_a_connection_outlives_its_session(kafka: LocalKafka, ground: Secured) -> None:
    """KIP-368: the broker ends a connection that does not authenticate again. Requests go on meanwhile."""

    async def list_until_reauthentication() -> int:
        how = security(ground, ADMIN, "SASL_PLAINTEXT", "SCRAM-SHA-256")
        conn = await BrokerConnection.open("127.0.0.1", kafka.nodes[0].clients_port, "test", security=how)
        count, until = 0, time.monotonic() + 2.5 * REAUTH_MS / 1000
        while time.monotonic() < until:
            answers = await asyncio.gather(*(conn.request(lg, "ListGroups", lg.ListGroupsRequest()) for _ in range(5)))
            assert {a.error_code for a in answers} == {Code.NONE}
            count += len(answers)
            await asyncio.sleep(0.005)
        conn.close()
        return count

    assert asyncio.run(list_until_reauthentication()) > 100


# ---- a whole sidecar ------------------------------------------------------------------------------------------------
def started(ground: Secured, **more: Any) -> LocalKafka:
    own = ground.file("own", ground.java(ADMIN, ground.internal, "SCRAM-SHA-512"))
    seen = ground.file("seen", ground.java(ADMIN, ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(seen), **more.pop("env", {})}
    kafka = ground.start(brokers=1, sidecar_env=env, **more)
    try:
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
    except BaseException:
        kafka.stop()
        raise
    return kafka


def consumed(kafka: LocalKafka, client: Mapping[str, Any], group: str, topic: str) -> list[TopicPartition]:
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": "consumer", "log_level": 2}
    consumer = Consumer({**config, **client})

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        consumer.subscribe([topic])
        wait_until("an assignment", assigned, 30)
        return list(consumer.assignment())
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalKafka, Secured]]:
    ground = Secured(tmp_path_factory.mktemp("sidecar"), reauth_ms=REAUTH_MS, authorizer=True)
    kafka = started(ground)
    try:
        ground.create(kafka, "secured", 3)
        yield kafka, ground
    finally:
        kafka.stop()


def test_a_sidecar_between_secured_listeners(sidecar: tuple[LocalKafka, Secured]) -> None:
    kafka, ground = sidecar
    client = ground.client(ADMIN, "SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert len(consumed(kafka, client, "managed-secured", "secured")) == 3
    time.sleep(2 * REAUTH_MS / 1000)
    assert len(consumed(kafka, client, "managed-secured", "secured")) == 3
    assert kafka.problems(kafka.nodes[0]) == []


def test_no_secret_is_told(sidecar: tuple[LocalKafka, Secured]) -> None:
    kafka, _ = sidecar
    node = kafka.nodes[0]
    assert node.sidecar is not None
    texts = [node.sidecar.log.read_text()]
    with urllib.request.urlopen(f"http://127.0.0.1:{node.admin_port}/metrics") as res:
        texts.append(res.read().decode())
    for text, marker in zip(texts, ("event='ready'", "sidecar_ready"), strict=True):
        assert_no_secret(text, marker)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"}, "/no/such.pem: No such file"),
    ],
)
def test_a_start_that_cannot_succeed_says_why(
    sidecar: tuple[LocalKafka, Secured], tmp_path: Path, properties: dict[str, str], said: str
) -> None:
    kafka, ground = sidecar
    env = kafka.sidecar_settings(kafka.nodes[0])
    env |= {"SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("wrong", properties)), "SIDECAR_BROKER_WAIT_MS": "1500"}
    env["SIDECAR_LISTEN"] = f"127.0.0.1:{kafka.nodes[0].peer_port}"
    del env["SIDECAR_ADMIN"]
    done = subprocess.run(
        [sys.executable, "-m", "sidecar.cli.main", "run"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert_no_secret(done.stderr + done.stdout, said)
    assert "Traceback" not in done.stderr


def test_a_start_with_wrong_credentials_keeps_its_port_open_and_serves_when_they_are_right(
    sidecar: tuple[LocalKafka, Secured],
) -> None:
    """Clients have their own: they pass meanwhile, for longer than `broker_wait_ms`, which is for brokers that do not
    answer at all."""
    kafka, ground = sidecar
    node = kafka.nodes[0]
    (listen,) = free_ports(1)
    file = ground.file("late", WRONG)
    env = {
        **kafka.sidecar_settings(node),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(file),
        "SIDECAR_BROKER_WAIT_MS": "1000",
        "SIDECAR_LISTEN": f"127.0.0.1:{listen}",
        "SIDECAR_STATE__TOPIC": "late-state",
        "SIDECAR_OWNERSHIP__GROUP": "late-owners",
    }
    del env["SIDECAR_ADMIN"]
    log = kafka.folder / "late.log"
    process = Process("late", [sys.executable, "-m", kafka.sidecar_main, "run"], log, env).start()
    try:
        said = "refuses SASL_PLAINTEXT PLAIN as admin"
        wait_until("the refusal", lambda: log.exists() and said in log.read_text(), 60, [process])
        client = ground.client(ADMIN, "SASL_PLAINTEXT", "SCRAM-SHA-512")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{listen}", "log_level": 2, **client})
        began = time.monotonic()
        while time.monotonic() < began + 3:
            assert admin.list_topics(timeout=30).topics
        assert process.alive
        assert log.read_text().count("the broker refuses the sidecar") == 1
        ground.file("late", ground.java(ADMIN, ground.clients, "SCRAM-SHA-256"))
        wait_until("ready", lambda: "event='ready'" in log.read_text(), 60, [process])
    finally:
        process.kill()
