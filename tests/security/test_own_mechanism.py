"""A mechanism of SASL that neither Kafka nor the sidecar knows. A real broker has a SASL server for it (java/Knock):
its exchange passes, with Kafka's own client and with one that says what a test wants."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.drill.artifacts import java
from sidecar.drill.local import JVM, LocalKafka
from sidecar.wire.generated import describe_groups as dg
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, MECHANISMS, Secured
from tests.security.raw import RawClient
from tests.security.test_clients import GROUPS
from tests.security.test_who import changed

pytestmark = pytest.mark.tier("all")
SOURCE = Path(__file__).parent.parent / "java" / "Knock.java"
KNOCK, WORD = "X-KNOCK", "knock-S3CRET-of-tests"
DESCRIBE_GROUPS, SASL_AUTHENTICATION_FAILED = 15, 58
Place = tuple[LocalKafka, Secured]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options with which a JVM has the mechanism."""
    classes = tmp_path_factory.mktemp("knock")
    command = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(classes), str(SOURCE)]
    subprocess.run(command, check=True)
    return (*JVM, f"-Xbootclasspath/a:{classes}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, jvm: tuple[str, ...]) -> Iterator[Place]:
    login = f'Knock required password="{WORD}";'
    logins = {f"listener.name.{name}.{KNOCK.lower()}.sasl.jaas.config": login for name in ("clients", "internal")}
    more = {"sasl.enabled.mechanisms": ",".join((*MECHANISMS, KNOCK)), **logins}
    ground = Secured(tmp_path_factory.mktemp("own-mechanism"), more=more)
    own = ground.file("own", ground.java(ADMIN, ground.internal))
    seen = ground.file("seen", ground.java(ADMIN, ground.clients))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(seen)}
    kafka = ground.start(brokers=1, sidecar_env=env, jvm=jvm)
    try:
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
        yield kafka, ground
    finally:
        kafka.stop()


def answer(nonce: bytes, word: str = WORD) -> bytes:
    return hashlib.sha256(nonce + word.encode()).hexdigest().encode()


def described(client: RawClient) -> int:
    """Describes a group as this client; returns the error code."""
    told = client.call(dg, "DescribeGroups", DESCRIBE_GROUPS, 0, dg.DescribeGroupsRequest(["managed-knock"]))
    return int(told.groups[0].error_code)


@pytest.mark.parametrize("direct", [True, False], ids=["broker", "sidecar"])
@pytest.mark.parametrize("first", [f"{ADMIN}\0victim\0x", f"{ADMIN}"])
def test_its_exchange_passes(place: Place, direct: bool, first: str) -> None:
    node = place[0].nodes[0]
    client = RawClient(node.clients_port if direct else node.sidecar_port)
    assert client.handshake(KNOCK, 1) == 0
    asked = client.authenticate(first.encode())
    assert asked.error_code == 0 and bytes(asked.auth_bytes).startswith(b"nonce-")
    told = client.authenticate(answer(bytes(asked.auth_bytes)))
    assert (told.error_code, bytes(told.auth_bytes)) == (0, b"come in")
    assert described(client) == 0
    client.close()


def test_tokens_without_headers_pass_too(place: Place) -> None:
    client = RawClient(place[0].nodes[0].sidecar_port)
    assert client.handshake(KNOCK, 0) == 0
    assert client.token(answer(client.token(ADMIN.encode()))) == b"come in"
    assert described(client) == 0
    client.close()


@pytest.mark.parametrize("direct", [True, False], ids=["broker", "sidecar"])
def test_who_is_refused_hears_it_from_the_broker(place: Place, direct: bool) -> None:
    node = place[0].nodes[0]
    client = RawClient(node.clients_port if direct else node.sidecar_port)
    assert client.handshake(KNOCK, 1) == 0
    told = client.authenticate(answer(bytes(client.authenticate(ADMIN.encode()).auth_bytes), "another word"))
    assert told.error_code == SASL_AUTHENTICATION_FAILED and KNOCK in (told.error_message or "")
    with pytest.raises((EOFError, ConnectionError)):
        described(client)


def test_its_principal_has_the_rights_and_records_name_nobody(place: Place) -> None:
    """The sidecar does not guess a name that it cannot read: here it would be the name of another user."""
    client = RawClient(place[0].nodes[0].sidecar_port)
    assert client.handshake(KNOCK, 1) == 0
    asked = client.authenticate(f"{ADMIN}\0victim\0x".encode())
    assert client.authenticate(answer(bytes(asked.auth_bytes))).error_code == 0
    assert changed(place, client) == "somebody authenticated"
    client.close()


def test_kafkas_own_client_with_it(place: Place, jvm: tuple[str, ...]) -> None:
    kafka, ground = place
    how = {"security.protocol": ground.clients, "sasl.mechanism": KNOCK}
    for word, refused in ((WORD, False), ("another word", True)):
        login = f'Knock required username="{ADMIN}" password="{word}";'
        path = ground.file(f"client-{refused}", {**how, "sasl.jaas.config": login})
        tool = kafka.tool(
            GROUPS, "--bootstrap-server", kafka.bootstrap, "--list", "--command-config", str(path), jvm=jvm
        )
        done = subprocess.run(tool.command, capture_output=True, text=True, timeout=60, check=False)
        said = done.stdout + done.stderr  # the tool ends with 0 either way
        assert ("SaslAuthenticationException" in said) == refused, said
        assert ("Error" in said) == refused, said
