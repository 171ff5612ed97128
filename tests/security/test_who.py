"""The record of an administrator's change to a group says who it was and from where: real brokers, real SASL."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from scramp import ScramException
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.state.codec import CONFIG, StateCodec
from sidecar.state.keys import StateKey, decode_key
from sidecar.wire.generated import incremental_alter_configs as ia
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, BROKER, Secured, secret_of
from tests.security.raw import RawClient, plain

pytestmark = pytest.mark.tier("all")
TOPIC = "__group_state"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
INCREMENTAL_ALTER_CONFIGS, GROUP, SASL_AUTHENTICATION_FAILED = 44, 32, 58
MALLORY, BEARER, VICTIM = "mallory", "bearer-of-a-token", "victim"
Place = tuple[LocalKafka, Secured]


def token_of(name: str) -> bytes:
    """Returns an OAUTHBEARER client's message with an unsigned token for this name."""
    now = int(time.time())  # one of this very millisecond may be one of the future, for the broker
    claims = {"sub": name, "iat": now, "exp": now + 3_000}
    head, body = (base64.urlsafe_b64encode(json.dumps(c).encode()).rstrip(b"=") for c in ({"alg": "none"}, claims))
    return b"auth=Bearer " + head + b"." + body + b"."


PASSWORD = token_of(VICTIM).decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    ground = Secured(tmp_path_factory.mktemp("who"), users=(MALLORY, BEARER, VICTIM), reauth_ms=600_000)
    users = ";".join(f"User:{u}" for u in (BROKER, "ANONYMOUS", ADMIN, MALLORY, BEARER))
    login = "listener.name.clients.plain.sasl.jaas.config"
    password = f'user_{BEARER}="{PASSWORD}"'
    plain_users = ground.properties()[login].replace(f'user_{BEARER}="{secret_of(BEARER)}"', password)
    ground.more = {"delegation.token.secret.key": "of-tests", "super.users": users, login: plain_users}
    own = ground.file("own", ground.java(ADMIN, ground.internal, "SCRAM-SHA-512"))
    seen = ground.file("seen", ground.java(ADMIN, ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(seen)}
    kafka = ground.start(brokers=1, sidecar_env=env)
    try:
        admin = ground.admin(kafka)  # must outlive its answers
        for future in admin.create_topics([NewTopic("orders", 3, 1)]).values():
            future.result(30)
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
        yield kafka, ground
    finally:
        kafka.stop()


def records_with_reasons(place: Place, codec: StateCodec) -> list[tuple[StateKey, dict[str, Any] | None, str]]:
    """Returns all records of the state topic: key, value, and why it was written."""
    kafka, ground = place
    how = ground.client(ADMIN, ground.internal)
    reader = Consumer(
        {"bootstrap.servers": kafka.internal, "group.id": "reader", "enable.partition.eof": True, "log_level": 2, **how}
    )
    parts = range(len(reader.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions))
    reader.assign([TopicPartition(TOPIC, p, 0) for p in parts])
    found: list[tuple[StateKey, dict[str, Any] | None, str]] = []
    ended = 0
    while ended < len(parts):
        message = reader.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        raw, value = message.key(), message.value()
        assert isinstance(raw, bytes)
        key = decode_key(raw)
        if key.kind == "schema":
            continue
        if isinstance(value, bytes):
            body = codec.schemas.decode(value)
            found.append((key, body, str(body["why"])))
        else:
            said = dict(message.headers() or ()).get("why")
            found.append((key, None, said.decode() if isinstance(said, bytes) else ""))
    reader.close()
    return found


def reasons(place: Place, kind: str, group: str, name: str | None = None, gone: bool = False) -> list[str]:
    rows = records_with_reasons(place, StateCodec())
    return [
        why
        for key, body, why in rows
        if (key.kind, key.group_id) == (kind, group) and name in (None, key.sub_id) and (body is None) == gone
    ]


def client(place: Place, mechanism: str, client_id: str) -> AdminClient:
    kafka, ground = place
    how: dict[str, Any] = ground.client(ADMIN, ground.clients, mechanism)
    if mechanism == "OAUTHBEARER":
        how = {"security.protocol": ground.clients, "sasl.mechanism": mechanism}
        how |= {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={ADMIN}"}
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "client.id": client_id, "log_level": 2, **how})


def alter(admin: AdminClient, group: str, name: str, value: str) -> None:
    op = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[op])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_setting_that_was_changed(place: Place, mechanism: str) -> None:
    group = f"managed-{mechanism.lower()}"
    admin = client(place, mechanism, f"tool of {mechanism}")
    if mechanism == "OAUTHBEARER":
        admin.poll(1)  # it makes its token there
    alter(admin, group, "consumer.session.timeout.ms", "50000")
    want = f'changed by User:{ADMIN} from 127.0.0.1, client id "tool of {mechanism}"'
    assert reasons(place, CONFIG, group, "consumer.session.timeout.ms") == [want]


# ---- names that are not theirs ---------------------------------------------------------------------------------------
def changed(place: Place, raw: RawClient) -> str:
    """Changes a setting over this connection; returns the principal in the record."""
    group = f"managed-{uuid.uuid4()}"
    change = ia.AlterableConfig("consumer.session.timeout.ms", 0, "50000")
    asked = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(GROUP, group, [change])])
    told = raw.call(ia, "IncrementalAlterConfigs", INCREMENTAL_ALTER_CONFIGS, 0, asked)
    assert told.responses[0].error_code == 0, told
    (why,) = reasons(place, CONFIG, group)
    return why.removeprefix("changed by ").removesuffix(' from 127.0.0.1, client id "raw"')


@pytest.fixture
def raw(place: Place) -> Iterator[RawClient]:
    made = RawClient(place[0].nodes[0].sidecar_port)
    yield made
    made.close()


def test_a_password_that_looks_like_a_token_is_a_password(place: Place, raw: RawClient) -> None:
    assert raw.handshake("PLAIN", 1) == 0
    assert raw.authenticate(plain(BEARER, PASSWORD)).error_code == 0
    assert changed(place, raw) == f"User:{BEARER}"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_extension_of_scram_may_be_called_as_the_name_is(place: Place, raw: RawClient, mechanism: str) -> None:
    assert raw.handshake(mechanism, 1) == 0
    raw.scram(MALLORY, mechanism, headers=True, more=f",n={VICTIM}")
    assert changed(place, raw) == f"User:{MALLORY}"


@pytest.mark.parametrize("first", [b"x=", b""])
def test_a_second_token_is_not_the_one_that_counts(place: Place, raw: RawClient, first: bytes) -> None:
    assert raw.handshake("OAUTHBEARER", 1) == 0
    message = b"n,,\1" + first + token_of(VICTIM) + b"\1" + token_of(MALLORY) + b"\1\1"
    told = raw.authenticate(message)
    assert (told.error_code, bytes(told.auth_bytes)) == (0, b"")
    assert changed(place, raw) == f"User:{MALLORY}"


def test_tokens_without_headers_name_nobody(place: Place, raw: RawClient) -> None:
    assert raw.handshake("SCRAM-SHA-512", 0) == 0
    raw.scram(MALLORY, "SCRAM-SHA-512", more=f",n={VICTIM}")
    assert changed(place, raw) == "somebody authenticated"


def test_who_is_there_cannot_shed_the_name(place: Place, raw: RawClient) -> None:
    assert raw.handshake("PLAIN", 1) == 0
    assert raw.authenticate(plain(MALLORY)).error_code == 0
    assert raw.authenticate(plain(VICTIM)).error_code == Code.ILLEGAL_SASL_STATE
    assert changed(place, raw) == f"User:{MALLORY}"


def test_a_session_that_authenticates_again_stays_who_it_is(place: Place, raw: RawClient) -> None:
    """The broker ends it if it would be somebody else, or changes its mechanism (KIP-368)."""
    for _ in range(2):
        assert raw.handshake("PLAIN", 1) == 0
        assert raw.authenticate(plain(MALLORY)).error_code == 0
        assert changed(place, raw) == f"User:{MALLORY}"
    wait_until("a second to be over, before which none begins again", lambda: raw.handshake("PLAIN", 1) == 0, 10)
    told = raw.authenticate(plain(VICTIM))
    assert told.error_code == SASL_AUTHENTICATION_FAILED and "Cannot change principals" in (told.error_message or "")
    with pytest.raises((EOFError, ConnectionError)):
        changed(place, raw)


def test_a_delegation_token_is_no_user(place: Place) -> None:
    """The token's id takes the place of a user's name, and an administrator may have made a user of that name."""
    kafka, ground = place
    how = str(ground.file("maker", ground.java(MALLORY, ground.clients)))
    made = ("--create", "--max-life-time-period", "-1", "--command-config", how)
    code, out = kafka.run_tool(TOKENS, "--bootstrap-server", kafka.bootstrap, *made)
    assert code == 0, out
    token_id, secret = next(ln for ln in out.splitlines() if f"User:{MALLORY}" in ln).split()[:2]
    for mechanism, more in (("SCRAM-SHA-256", ",tokenauth=TRUE"), ("SCRAM-SHA-512", ",tokenauth=true")):
        client = let_in(kafka, mechanism, token_id, secret, more)
        assert changed(place, client) == "somebody authenticated"
        client.close()


def let_in(kafka: LocalKafka, mechanism: str, token_id: str, secret: str, more: str) -> RawClient:
    """Once the broker has heard of the token."""
    found: list[RawClient] = []

    def tried() -> bool:
        client = RawClient(kafka.nodes[0].sidecar_port)
        assert client.handshake(mechanism, 1) == 0
        try:
            client.scram(token_id, mechanism, headers=True, more=more, password=secret)
        except ScramException:
            client.close()
            return False
        found.append(client)
        return True

    wait_until("the token to count", tried, 20)
    return found[0]


def run(place: Place, *words: str, code: int = 0) -> None:
    kafka, ground = place
    path: Path = ground.folder / "command.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in ground.client(ADMIN, ground.clients, "SCRAM-SHA-256").items()))
    more = ["--bootstrap", kafka.bootstrap, "--command-config", str(path)]
    result = CliRunner().invoke(app, ["groups", *words, *more])
    assert result.exit_code == code, result.output


BY_COMMAND = f'User:{ADMIN} from 127.0.0.1, client id "sidecar-groups"'


def test_adopt_and_release(place: Place) -> None:
    run(place, "adopt", "theirs")
    run(place, "release", "theirs")  # nobody has ever been in it, so the order is taken back
    for gone in (False, True):
        assert reasons(place, CONFIG, "theirs", "sidecar.managed", gone) == [f"changed by {BY_COMMAND}"]
    run(place, "release", "theirs", code=1)


@contextmanager
def joined(place: Place, group: str, **more: str) -> Iterator[None]:
    """A member of this group has an assignment. `more`: its properties."""
    kafka, ground = place
    how = ground.client(ADMIN, ground.clients, "SCRAM-SHA-256")
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": "consumer", **how, **more}
    member = Consumer({**config, "log_level": 2})

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    try:
        member.subscribe(["orders"])
        wait_until("an assignment", assigned, 30)
        yield
    finally:
        member.close()


def test_rebalance_and_delete(place: Place) -> None:
    kafka, _ = place
    with joined(place, "managed-live"):
        run(place, "rebalance", "managed-live", "--reason", "lag is uneven")
        shown = kafka.get(kafka.nodes[0], "/api/v1/group?" + urllib.parse.urlencode({"id": "managed-live"}))
        assert shown["rebalances"][0]["why"].startswith(f"lag is uneven (changed by {BY_COMMAND}, 20")
        assert shown["rebalances"][-1]["joined"]["count"] == 1
    assert any(BY_COMMAND in why for why in reasons(place, "group", "managed-live"))
    admin = client(place, "PLAIN", "the broom")
    until = time.monotonic() + 20
    while True:
        try:
            admin.delete_consumer_groups(["managed-live"])["managed-live"].result(30)
            break
        except Exception as exc:
            if "NON_EMPTY" not in str(exc) or time.monotonic() > until:
                raise
            time.sleep(0.3)
    want = f'deleted by User:{ADMIN} from 127.0.0.1, client id "the broom"'
    assert reasons(place, "group", "managed-live", gone=True) == [want]


def test_a_static_member_that_is_removed(place: Place) -> None:
    with joined(place, "managed-static", **{"group.instance.id": "i-1"}):
        run(place, "rebalance", "managed-static", "--remove-instance", "i-1")
        want = f"left: removed by the administrator (removed by {BY_COMMAND})"
        assert any(want in why for why in reasons(place, "group", "managed-static"))


def test_no_secret_came_into_records_or_log(place: Place) -> None:
    kafka, _ = place
    sidecar = kafka.nodes[0].sidecar
    assert sidecar is not None
    text = sidecar.log.read_text() + json.dumps(records_with_reasons(place, StateCodec()), default=str)
    assert "sidecar-groups" in text and "S3CRET" not in text
