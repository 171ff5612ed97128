"""Clients of a secured broker, through the sidecar: who they are passes, and what the broker says to it comes back.

Once over SASL_PLAINTEXT on both legs, once over SASL_SSL on both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType  # type: ignore[attr-defined]

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, wait_until
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import metadata as md
from tests.clients.ground import ENV
from tests.clients.wire import join_request
from tests.security.ground import ADMIN, MECHANISMS, MODULE, Secured, assert_no_secret
from tests.security.raw import RawClient, plain

LATER, NIGHTLY = pytest.mark.tier("all"), pytest.mark.tier("nightly")
DAY_MS = 86_400_000
REAUTH_MS, CACHE_MS, RECORDS = 4_000, 1_000, 20
SESSIONS = 2.2
"""Sessions for which a member is watched: two must have been renewed."""
GROUPS, CONSOLE = (
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "org.apache.kafka.tools.consumer.ConsoleConsumer",
)
TOKENS, CONFIGS = "org.apache.kafka.tools.DelegationTokenCommand", "org.apache.kafka.tools.ConfigCommand"
TOPIC = "guarded"
USERS = ("Diana", "mallory", "slow")
"""Diana: her PLAIN token begins as a ConsumerGroupHeartbeat does. mallory may do nothing."""


@dataclass
class Guarded:
    ground: Secured
    kafka: LocalKafka

    @property
    def protocol(self) -> str:
        return self.ground.clients

    @property
    def direct(self) -> str:
        """The broker's own listener for clients."""
        return f"127.0.0.1:{self.kafka.nodes[0].clients_port}"

    def librdkafka(self, user: str, mechanism: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ground.client(user, self.protocol, mechanism)
        if mechanism == "OAUTHBEARER":
            del found["sasl.username"], found["sasl.password"]
            found |= {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={user}"}
        return {"bootstrap.servers": self.kafka.bootstrap, "log_level": 2, **found, **more}

    def java(self, name: str, user: str, mechanism: str, **more: str) -> str:
        return str(self.ground.file(name, {**self.ground.java(user, self.protocol, mechanism), **more}))

    def raw(self, direct: bool = False) -> RawClient:
        node = self.kafka.nodes[0]
        authority = str(self.ground.authority.pem) if self.protocol.endswith("SSL") else ""
        return RawClient(node.clients_port if direct else node.sidecar_port, authority)

    def closed_by_broker(self) -> float:
        return figure(self.kafka, 'sidecar_connections_closed_total{cause="broker_closed"}')


def figure(kafka: LocalKafka, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{kafka.nodes[0].admin_port}/metrics", timeout=5) as res:
        for line in res.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[-1])
    return 0.0


@pytest.fixture(scope="module", params=[pytest.param("SASL_PLAINTEXT", marks=LATER), "SASL_SSL"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("clients")
    more = {"delegation.token.secret.key": "of-tests", "delegation.token.expiry.time.ms": str(DAY_MS)}
    ground = Secured(folder, clients=request.param, users=USERS, reauth_ms=REAUTH_MS, more=more)
    env = {
        **ENV,
        "SIDECAR_COMMAND_CONFIG": str(ground.file("own", ground.java(ADMIN, ground.internal, "SCRAM-SHA-512"))),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("seen", ground.java(ADMIN, request.param, "PLAIN"))),
        "SIDECAR_AUTHORISATION_CACHE_MS": str(CACHE_MS),
    }
    if request.param.endswith("SSL"):
        papers = ground.authority.issue("sidecar")
        env |= {"SIDECAR_TLS__CERTIFICATE": str(papers.certificate), "SIDECAR_TLS__KEY": str(papers.key)}
    kafka = ground.start(brokers=1, sidecar_env=env)
    try:
        ground.create(kafka, TOPIC, 3)
        rights = [(ResourceType.TOPIC, TOPIC, AclOperation.ALL), (ResourceType.GROUP, "*", AclOperation.ALL)]
        for user in ("Diana", "slow"):
            ground.allow(kafka, user, rights)
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
        made = Guarded(ground, kafka)
        producer = Producer(made.librdkafka("Diana", "SCRAM-SHA-256"))
        for n in range(RECORDS):
            producer.produce(TOPIC, str(n), str(n))
        assert producer.flush(30) == 0
        yield made
    finally:
        kafka.stop()


def read_all(group: str, lost: list[Any] | None = None, **config: Any) -> Consumer:
    """A consumer that has read everything; the caller closes it. `lost`: takes what it had and has no more."""
    consumer = Consumer({"group.id": group, "auto.offset.reset": "earliest", **config})
    taken = [] if lost is None else lost
    consumer.subscribe([TOPIC], on_revoke=lambda c, p: taken.append(p), on_lost=lambda c, p: taken.append(p))
    count = 0

    def done() -> bool:
        nonlocal count
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            count += 1
        return count >= RECORDS

    wait_until("all records", done, 120)
    return consumer


# ---- every mechanism
@pytest.mark.parametrize(
    ("mechanism", "protocol"),
    [
        ("SCRAM-SHA-512", "classic"),
        ("OAUTHBEARER", "consumer"),
        *(
            pytest.param(m, p, marks=LATER)
            for m in MECHANISMS
            for p in ("consumer", "classic")
            if (m, p) not in (("SCRAM-SHA-512", "classic"), ("OAUTHBEARER", "consumer"))
        ),
    ],
)
def test_librdkafka(place: Guarded, mechanism: str, protocol: str) -> None:
    group = f"managed-{mechanism}-{protocol}"
    consumer = read_all(group, **place.librdkafka("Diana", mechanism, **{"group.protocol": protocol}))
    consumer.commit(asynchronous=False)
    owned = place.kafka.owners(place.kafka.nodes[0], group)
    assert owned is not None and owned["groups"][group] == 1
    consumer.close()


@pytest.mark.parametrize(
    ("mechanism", "protocol"),
    [
        pytest.param(m, "consumer" if n % 2 else "classic", marks=() if m == "SCRAM-SHA-256" else LATER)
        for n, m in enumerate(MECHANISMS)
    ],
)
def test_java(place: Guarded, mechanism: str, protocol: str) -> None:
    how = place.java(f"console-{mechanism}", "Diana", mechanism, **{"group.protocol": protocol})
    group = f"managed-java-{mechanism}"
    bootstrap = ("--bootstrap-server", place.kafka.bootstrap)
    wanted = ("--topic", TOPIC, "--group", group, "--from-beginning", "--max-messages", str(RECORDS))
    code, out = place.kafka.run_tool(CONSOLE, *bootstrap, *wanted, "--timeout-ms", "40000", "--command-config", how)
    assert code == 0 and f"Processed a total of {RECORDS} messages" in out, out
    code, out = place.kafka.run_tool(GROUPS, *bootstrap, "--command-config", how, "--describe", "--group", group)
    assert code == 0 and out.count(TOPIC) == 3, out


@LATER
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_the_same_error_as_at_the_broker(place: Guarded, mechanism: str) -> None:
    def login_error(bootstrap: str) -> tuple[int, str]:
        heard: list[KafkaError] = []
        more = {"bootstrap.servers": bootstrap, "sasl.password": "no", "error_cb": heard.append}
        client = AdminClient(place.librdkafka("Diana", mechanism, **more))
        end = time.monotonic() + 20
        while not any(e.code() == KafkaError._AUTHENTICATION for e in heard):
            assert time.monotonic() < end, heard
            client.poll(0.1)
        error = next(e for e in heard if e.code() == KafkaError._AUTHENTICATION)
        return error.code(), error.str().partition("SASL authentication error: ")[2].partition(" (after")[0]

    through, direct = login_error(place.kafka.bootstrap), login_error(place.direct)
    assert through == direct and "Authentication failed" in through[1]


def test_a_wrong_password_of_a_java_client_too(place: Guarded) -> None:
    login = f'{MODULE}.plain.PlainLoginModule required username="Diana" password="no";'
    how = place.java("wrong", "Diana", "PLAIN", **{"sasl.jaas.config": login})
    said = []
    for bootstrap in (place.kafka.bootstrap, place.direct):
        _, out = place.kafka.run_tool(GROUPS, "--bootstrap-server", bootstrap, "--command-config", how, "--list")
        said.append(next(line for line in out.splitlines() if "SaslAuthenticationException" in line))
    assert said[0] == said[1] and "Authentication failed: Invalid username or password" in said[0]


def test_each_client_is_itself(place: Guarded) -> None:
    """mallory is let in and may do nothing; Diana's connections beside hers do not help her."""
    diana = read_all("managed-of-diana", **place.librdkafka("Diana", "PLAIN", **{"group.protocol": "consumer"}))
    for protocol in ("consumer", "classic"):
        config = place.librdkafka("mallory", "SCRAM-SHA-512", **{"group.protocol": protocol})
        mallory = Consumer({**config, "group.id": "managed-of-diana"})
        mallory.subscribe([TOPIC])
        refused = set()
        end = time.monotonic() + 15
        while time.monotonic() < end and KafkaError.GROUP_AUTHORIZATION_FAILED not in refused:
            try:
                message = mallory.poll(0.2)
            except KafkaException as exc:
                refused.add(exc.args[0].code())
                continue
            error = message.error() if message is not None else None
            if error is not None:
                refused.add(error.code())
        mallory.close()
        assert refused & {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert len(diana.assignment()) == 3
    diana.close()


# ---- tokens without headers
def talk_v0(place: Guarded, direct: bool, say: Callable[[RawClient], None], mechanism: str) -> list[str]:
    client = place.raw(direct)
    try:
        assert client.handshake(mechanism, 0) == 0
        say(client)
        req = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)])
        res = client.call(md, "Metadata", 3, 4, req)
        return [f"{t.name} {t.error_code} {len(t.partitions)}" for t in res.topics]
    finally:
        client.close()


BEARER = b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0.%s.\1\1"


@LATER
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_handshakes_of_version_0(place: Guarded, mechanism: str) -> None:
    """Old clients: PLAIN's token of Diana would be a ConsumerGroupHeartbeat, and its answer has no bytes."""
    from base64 import urlsafe_b64encode

    def authenticate_again(client: RawClient) -> None:
        if mechanism == "PLAIN":
            assert client.token(plain("Diana")) == b""
        elif mechanism == "OAUTHBEARER":
            now = int(time.time())
            claims = b'{"sub":"Diana","iat":%d,"exp":%d}' % (now, now + 3_600)
            assert client.token(BEARER % urlsafe_b64encode(claims).rstrip(b"=")) == b""
        else:
            client.scram("Diana", mechanism)

    assert (
        talk_v0(place, False, authenticate_again, mechanism)
        == talk_v0(place, True, authenticate_again, mechanism)
        == [f"{TOPIC} 0 3"]
    )


def test_a_wrong_password_behind_a_handshake_of_version_0_ends_the_connection(place: Guarded) -> None:
    for direct in (False, True):
        client = place.raw(direct)
        assert client.handshake("PLAIN", 0) == 0
        with pytest.raises((EOFError, ConnectionError)):
            client.token(plain("Diana", "no"))
        client.close()
        client = place.raw(direct)
        assert client.handshake("NONE-SUCH", 0) == 33
        with pytest.raises((EOFError, ConnectionError)):
            client.token(plain("Diana"))
        client.close()


def test_nothing_is_served_before_a_client_has_authenticated(place: Guarded) -> None:
    client = place.raw()
    with pytest.raises((EOFError, ConnectionError)):
        client.call(ch, "ConsumerGroupHeartbeat", 68, 1, join_request("managed-x", "m" * 22, [TOPIC]), True)
    client.close()


# ---- sessions that end (KIP-368)
@NIGHTLY
def test_members_outlive_their_sessions(place: Guarded) -> None:
    """Members of librdkafka with both protocols, and of Java, authenticate again on the same connections; nothing is
    revoked, and no connection is lost."""
    lost: list[Any] = []
    before = place.closed_by_broker()
    members = []
    for protocol in ("consumer", "classic"):
        config = place.librdkafka("Diana", "SCRAM-SHA-256", **{"group.protocol": protocol})
        members.append(read_all(f"managed-long-{protocol}", lost, **config))
    java, heard = java_member(place, "managed-java-long")
    until = time.monotonic() + SESSIONS * REAUTH_MS / 1000
    while time.monotonic() < until:
        for consumer in members:
            message = consumer.poll(0.1)
            assert message is None or message.error() is None, message.error()
    assert not lost and [len(consumer.assignment()) for consumer in members] == [3, 3]
    assert java.alive
    assert place.closed_by_broker() == before
    for consumer in members:
        consumer.close()
    java.stop(timeout_s=15)
    events = "".join([*heard, *java.stdout])
    assert events.count('"partitions_assigned"') == 1 and "lost" not in events, events


def java_member(place: Guarded, group: str) -> tuple[Process, list[str]]:
    """A Java member with partitions, and its output."""
    member = place.kafka.tool(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", place.kafka.bootstrap, "--topic", TOPIC, "--group-id", group),
        *("--group-protocol", "consumer", "--reset-policy", "earliest"),
        *("--command-config", place.java("long", "Diana", "PLAIN")),
        name=f"verifiable-{place.protocol}",
        lines=True,
    ).start()
    heard = []
    for line in member.stdout:
        heard.append(line)
        if "partitions_assigned" in line and TOPIC in line:
            break
    return member, heard


def heartbeats_until_the_end(place: Guarded, direct: bool, again_s: float) -> tuple[float, int]:
    """Sends heartbeats of a member that does not authenticate again. Returns the seconds until its connection ended,
    and how often it was answered in that time."""
    client = place.raw(direct)
    group = "direct" if direct else "managed-short"
    assert client.handshake("PLAIN", 1) == 0
    since = time.monotonic()
    assert client.authenticate(plain("Diana")).session_lifetime_ms > 0
    req = join_request(group, "AAAAAAAAAAAAAAAAAAAAAA", [TOPIC])
    res = client.call(ch, "ConsumerGroupHeartbeat", 68, 1, req, True)
    assert res.error_code == 0, res
    answers = 0
    try:
        while time.monotonic() - since < 30:
            req = ch.ConsumerGroupHeartbeatRequest(group, res.member_id, member_epoch=res.member_epoch)
            res = client.call(ch, "ConsumerGroupHeartbeat", 68, 1, req, True)
            assert res.error_code == 0, res
            answers += 1
            time.sleep(again_s)
    except (EOFError, ConnectionError):
        return time.monotonic() - since, answers
    finally:
        client.close()
    return float("inf"), answers


@NIGHTLY
def test_only_who_authenticates_again_is_served_on(place: Guarded) -> None:
    """The front answers steady heartbeats by itself, but not for longer than the broker's word is kept."""
    with ThreadPoolExecutor(3) as pool:
        through, direct = (pool.submit(heartbeats_until_the_end, place, direct, 0.1) for direct in (False, True))
        again = pool.submit(served_on, place)
    ended_s, answers = through.result()
    assert REAUTH_MS / 1000 * 0.8 <= ended_s <= (REAUTH_MS + CACHE_MS) / 1000 + 1.0, ended_s
    assert answers > 20
    ended_s, _ = direct.result()
    assert REAUTH_MS / 1000 * 0.8 <= ended_s <= REAUTH_MS / 1000 + 1.0, "and so does the broker"
    assert again.result() == {0, 1}


def served_on(place: Guarded) -> set[int]:
    """A raw client that authenticates again between two of its heartbeats, in turns with a handshake of either
    version. Returns the versions."""
    client = place.raw()
    assert client.handshake("PLAIN", 1) == 0
    client.authenticate(plain("Diana"))
    req = join_request("managed-again", "AAAAAAAAAAAAAAAAAAAAAA", [TOPIC])
    res = client.call(ch, "ConsumerGroupHeartbeat", 68, 1, req, True)
    until, version, had = time.monotonic() + SESSIONS * REAUTH_MS / 1000, 0, set()
    again = time.monotonic() + 1.5
    while time.monotonic() < until:
        if time.monotonic() > again:
            version, again = 1 - version, time.monotonic() + 1.5
            had.add(version)
            assert client.handshake("PLAIN", version) == 0
            if version:
                assert client.authenticate(plain("Diana")).error_code == 0
            else:
                assert client.token(plain("Diana")) == b""
        req = ch.ConsumerGroupHeartbeatRequest("managed-again", res.member_id, member_epoch=res.member_epoch)
        res = client.call(ch, "ConsumerGroupHeartbeat", 68, 1, req, True)
        assert res.error_code == 0, res
        time.sleep(0.1)
    client.close()
    return had


# ---- delegation tokens, quotas
@LATER
def test_a_delegation_token(place: Guarded) -> None:
    """Diana has one made through the sidecar, a client that has nothing else is Diana, and she renews it."""
    how = how_made = place.java("maker", "Diana", "SCRAM-SHA-256")
    bootstrap = ("--bootstrap-server", place.kafka.bootstrap)
    made = ("--create", "--max-life-time-period", "-1", "--command-config", how)
    code, out = place.kafka.run_tool(TOKENS, *bootstrap, *made)
    assert code == 0, out
    line = next(ln for ln in out.splitlines() if "User:Diana" in ln)
    token_id, hmac = line.split()[:2]
    before = expiry_ms(place, how_made)
    login = f'{MODULE}.scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";'
    how = place.java("token", "Diana", "SCRAM-SHA-256", **{"sasl.jaas.config": login})
    wanted = ("--topic", TOPIC, "--group", "managed-token", "--from-beginning", "--max-messages", str(RECORDS))
    code, out = place.kafka.run_tool(CONSOLE, *bootstrap, *wanted, "--timeout-ms", "40000", "--command-config", how)
    assert code == 0 and f"Processed a total of {RECORDS} messages" in out, out
    renewal = ("--renew", "--renew-time-period", str(DAY_MS // 2), "--hmac", hmac, "--command-config", how_made)
    code, out = place.kafka.run_tool(TOKENS, *bootstrap, *renewal)
    assert code == 0 and "Completed renew operation" in out, out
    after = expiry_ms(place, how_made)[token_id]
    assert DAY_MS / 4 < before[token_id] - after < DAY_MS * 3 / 4, "it was made for a day, and has half of one now"


def expiry_ms(place: Guarded, how: str) -> dict[str, int]:
    """Returns when each token of Diana's ends, as Kafka's own tool shows it through the sidecar."""
    listed = ("--describe", "--owner-principal", "User:Diana", "--command-config", how)
    code, out = place.kafka.run_tool(TOKENS, "--bootstrap-server", place.kafka.bootstrap, *listed)
    assert code == 0, out
    rows = [line.split() for line in out.splitlines() if re.search(r"User:Diana.*T\d\d:", line)]
    return {row[0]: int(datetime.strptime(row[-2], "%Y-%m-%dT%H:%M").timestamp() * 1000) for row in rows}


@LATER
def test_a_quota_is_the_principals_own(place: Guarded) -> None:
    how = str(place.ground.file("admin", place.ground.java(ADMIN, place.ground.internal)))
    quota = ("--alter", "--add-config", "request_percentage=0.01", "--entity-type", "users", "--entity-name", "slow")
    code, out = place.kafka.run_tool(
        CONFIGS, "--bootstrap-server", place.kafka.internal, "--command-config", how, *quota
    )
    assert code == 0, out

    def throttled(user: str) -> int:
        client = place.raw()
        assert client.handshake("PLAIN", 1) == 0
        client.authenticate(plain(user))
        req = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)])
        most = 0
        end = time.monotonic() + 3
        while time.monotonic() < end and not most:
            most = client.call(md, "Metadata", 3, 4, req).throttle_time_ms
        client.close()
        return int(most)

    assert throttled("slow") > 0
    assert throttled("Diana") == 0


def test_no_secret_is_told(place: Guarded) -> None:
    node = place.kafka.nodes[0]
    assert node.sidecar is not None
    assert_no_secret(node.sidecar.log.read_text(), "event='ready'")
