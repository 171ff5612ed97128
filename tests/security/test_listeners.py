"""Everything of ours that connects to brokers, on listeners of all four security protocols: the wire client, the tail
of a sidecar, the commands and the audit, with one file as Kafka's tools have it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sidecar.audit.source.uri import open_source
from sidecar.cli.connect import properties as properties_in
from sidecar.cli.main import app
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection, NotAuthenticated
from sidecar.kafka.properties import of, read
from sidecar.kafka.security import Security
from sidecar.wire.generated import list_groups as lg
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, MODULE, Authority, Secured, assert_no_secret, dumped, secret_of
from tests.security.test_own import consumed
from tests.security.tokens import Issuer, issuer

pytestmark = pytest.mark.tier("all")
BY_SERVER = "OAUTHBEARER of a server"
CASES = [
    ("PLAINTEXT", ""),
    ("SSL", ""),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", BY_SERVER),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "OAUTHBEARER"),
]
IN_ALL = (CASES[4],)
PARAMS = [c if c in IN_ALL else pytest.param(c, marks=pytest.mark.tier("nightly")) for c in CASES]
WITH_SPARK = (CASES[0], CASES[1], CASES[3], CASES[4])
"""With a server the workers ask for tokens of their own."""
STRANGER, GROUP, OTHER = "stranger", "managed-listeners", "left-{}"
TYPICAL = {
    "bootstrap.servers": "elsewhere:9092",
    "client.id": "of-a-team",
    "default.api.timeout.ms": "60000",
    "request.timeout.ms": "30000",
    "connections.max.idle.ms": "-1",
    "group.id": "of-a-team",
    "group.protocol": "consumer",
    "auto.offset.reset": "none",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
    "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "interceptor.classes": "org.example.Interceptor",
    "sasl.kerberos.service.name": "kafka",
    "sasl.login.refresh.window.factor": "0.8",
}
"""Other settings in files for Kafka's tools and applications."""


@dataclass
class SecuredCluster:
    kafka: LocalKafka
    ground: Secured
    protocol: str
    mechanism: str
    file: Path
    issuer: Issuer
    outputs: list[str] = field(default_factory=list)

    @property
    def security(self) -> Security:
        return read(self.file)

    def run(self, *words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--command-config", str(self.file)])
        assert result.exit_code == 0 or words[0] == "doctor", (words, result.output, result.exception)
        self.outputs.append(result.output)
        return result.stdout

    def through(self, *words: str) -> str:
        """At the sidecar."""
        return self.run(*words, "--bootstrap", self.kafka.bootstrap)

    def direct(self, *words: str) -> str:
        """At the broker's own listener."""
        return self.run(*words, "--bootstrap", self.kafka.internal)


class Clusters:
    """One at a time: both listeners of its broker have the same protocol."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ground: Secured | None = None
        self.kafka: LocalKafka | None = None

    def of(self, protocol: str) -> tuple[LocalKafka, Secured]:
        if self.kafka is None or self.ground is None or self.ground.clients != protocol:
            self.stop()
            self.ground = Secured(self._folder / protocol, clients=protocol, internal=protocol)
            self.kafka = self.ground.start(brokers=1)
            self.ground.create(self.kafka, "orders", 3)
        return self.kafka, self.ground

    def stop(self) -> None:
        if self.kafka is not None:
            self.kafka.stop()
        self.kafka = None


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    made = Clusters(tmp_path_factory.mktemp("listeners"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Issuer]:
    with issuer() as made:
        yield made


def properties(ground: Secured, protocol: str, mechanism: str, url: str) -> dict[str, str]:
    found = ground.java(ADMIN, protocol, mechanism.split(" ")[0])
    if mechanism == BY_SERVER:
        who = f'clientId="{ADMIN}" clientSecret="{secret_of(ADMIN)}" scope="kafka"'
        found |= {
            "sasl.oauthbearer.token.endpoint.url": url.replace("//", f"//somebody:{secret_of('url')}@"),
            "sasl.login.callback.handler.class": f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required {who};",
        }
    no_tls = {} if protocol.endswith("SSL") else {"ssl.cipher.suites": "TLS_X"}
    return {**TYPICAL, **no_tls, **found}


@pytest.fixture(scope="module", params=PARAMS, ids=[" ".join(c).strip() for c in CASES])
def place(request: pytest.FixtureRequest, clusters: Clusters, server: Issuer) -> Iterator[SecuredCluster]:
    """A sidecar whose clients' listener and whose bootstrap have this protocol, each with the same file."""
    protocol, mechanism = request.param
    kafka, ground = clusters.of(protocol)
    file = ground.file(mechanism.replace(" ", "-") or "own", properties(ground, protocol, mechanism, server.url))
    env = {**ENV, "SIDECAR_LOG__LEVEL": "debug", "SIDECAR_COMMAND_CONFIG": str(file)}
    if protocol.endswith("SSL"):
        papers = ground.authority.issue("sidecar")
        env |= {"SIDECAR_TLS__CERTIFICATE": str(papers.certificate), "SIDECAR_TLS__KEY": str(papers.key)}
    if protocol == "SSL":
        env |= {"SIDECAR_TLS__CLIENT_AUTH": "required", "SIDECAR_TLS__CA": str(ground.authority.pem)}
    kafka.sidecar_env = env
    node = kafka.nodes[0]
    started = kafka.start_sidecar(node)
    try:
        kafka.wait_ready()
        client = of({**ground.java(ADMIN, protocol, "SCRAM-SHA-256")}).librdkafka()
        assert len(consumed(kafka, client, GROUP, "orders")) == 3
        yield SecuredCluster(kafka, ground, protocol, mechanism, file, server)
    finally:
        started.stop()
        node.sidecar = None


async def list_groups(port: int, how: Security) -> list[str]:
    conn = await BrokerConnection.open("127.0.0.1", port, "test", timeout_s=10, security=how)
    try:
        res = await conn.request(lg, "ListGroups", lg.ListGroupsRequest())
        assert res.error_code == Code.NONE
        return [g.group_id for g in res.groups]
    finally:
        conn.close()


def test_a_group_is_served_and_the_tail_follows(place: SecuredCluster) -> None:
    node = place.kafka.nodes[0]
    assert place.kafka.problems(node) == []
    with urllib.request.urlopen(f"http://127.0.0.1:{node.admin_port}/group?id={GROUP}", timeout=5) as res:
        assert GROUP in res.read().decode()


def test_the_wire_client(place: SecuredCluster) -> None:
    node = place.kafka.nodes[0]
    for port in (node.internal_port, node.clients_port):
        assert "__group_state_owners" in asyncio.run(list_groups(port, place.security))
    assert GROUP in asyncio.run(list_groups(node.sidecar_port, place.security))


def test_commands(place: SecuredCluster) -> None:
    """The commands ask the sidecars, read the state topic, or change something."""
    other = OTHER.format(CASES.index((place.protocol, place.mechanism)))
    client = of(place.ground.java(ADMIN, place.protocol, "SCRAM-SHA-256")).librdkafka()
    consumed(place.kafka, client, other, "orders")
    for words in (("groups", "list", "-o", "json"), ("top", "-o", "json")):
        listed = [json.loads(line) for line in place.through(*words).splitlines()]
        assert GROUP in {row["group"] for row in listed}
    for ask in (place.through, place.direct):
        assert "group epoch" in ask("groups", "history", GROUP)
        assert ask("owner", GROUP)
    assert GROUP in place.through("groups", "explain", GROUP)
    assert "is the sidecars' now" in place.through("groups", "adopt", other)
    assert "is with the broker now" in place.through("groups", "release", other)
    admin = f"127.0.0.1:{place.kafka.nodes[0].admin_port}"
    assert "sidecars ready" in place.through("doctor", "--admin", admin)
    dump = place.kafka.folder / f"dump-{other}.jsonl"
    place.direct("state", "dump", str(dump))
    assert GROUP in dumped(dump)


def test_the_audit(place: SecuredCluster) -> None:
    """As users run it: in a process of its own, with Spark's workers; once for each protocol. What else has this
    protocol differs in one property, and there the audit's source is asked without Spark."""
    address = f"kafka://{place.kafka.internal}"
    if (place.protocol, place.mechanism) not in WITH_SPARK:
        options = {f"kafka.{name}": value for name, value in properties_in(place.file).items()}
        source = open_source(address, options)
        ranges = {p: (first, end) for p, (first, end) in source.bounds().items() if end > first}
        assert any(batch.num_rows for split in source.splits(ranges) for batch in split())
        return
    command = [sys.executable, "-m", "sidecar.cli.main", "audit", "run", "--from", address]
    command += ["--lake", str(place.kafka.folder / f"lake-{place.mechanism}"), "--command-config", str(place.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert_no_secret(done.stdout + done.stderr, "Every record is there")


def test_it_is_who_it_should_be(place: SecuredCluster) -> None:
    """Each broker takes the principal from where the protocol has it: a certificate, a login, a token."""
    if place.mechanism == BY_SERVER:
        assert place.issuer.asked
        assert {(name, *form["scope"]) for name, form in place.issuer.asked} == {(ADMIN, "kafka")}
    if place.protocol == "SSL":
        node = place.kafka.nodes[0]
        mine, of_a_stranger = (of(place.ground.java(who, "SSL")) for who in (ADMIN, STRANGER))
        assert "__group_state_owners" in asyncio.run(list_groups(node.internal_port, mine))
        assert asyncio.run(list_groups(node.internal_port, of_a_stranger)) == []
        nobody = {n: v for n, v in place.ground.java(ADMIN, "SSL").items() if "keystore" not in n}
        by_others = Authority(place.ground.folder / "others").issue(ADMIN).store
        untrusted = {**place.ground.java(ADMIN, "SSL"), "ssl.keystore.location": str(by_others)}
        for who in (nobody, untrusted):
            for port in (node.internal_port, node.sidecar_port):
                with pytest.raises(NotAuthenticated, match=r"look at ssl\.keystore\.location"):
                    asyncio.run(list_groups(port, of(who)))
        assert node.sidecar is not None
        assert "cause='client_certificate'" in node.sidecar.log.read_text()


def test_no_secret_is_told(place: SecuredCluster) -> None:
    """Nor the key of a certificate, nor the password in a URL."""
    node = place.kafka.nodes[0]
    assert node.sidecar is not None
    place.through("groups", "explain", GROUP)
    keys = [path.read_text().splitlines()[1] for path in place.ground.authority.folder.glob("*.key")]
    assert_no_secret(node.sidecar.log.read_text(), "event='ready'", keys)
    assert_no_secret("".join(place.outputs), GROUP, keys)
