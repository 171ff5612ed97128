"""What an administrator does to a group is written down with who it was and from where: real brokers, real SASL."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator
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
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.state.codec import CONFIG, StateCodec
from sidecar.state.keys import StateKey, decode_key
from tests.clients.conftest import ENV
from tests.security.ground import ADMIN, Secured

pytestmark = pytest.mark.kafka
TOPIC = "__group_state"
Place = tuple[LocalKafka, Secured]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    ground = Secured(tmp_path_factory.mktemp("who"))
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


def told(place: Place, codec: StateCodec) -> list[tuple[StateKey, dict[str, Any] | None, str]]:
    """The whole topic: key, value, and why it was written."""
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
    rows = told(place, StateCodec())
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


def run(place: Place, *words: str) -> None:
    kafka, ground = place
    path: Path = ground.folder / "command.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in ground.client(ADMIN, ground.clients, "SCRAM-SHA-256").items()))
    more = ["--bootstrap", kafka.bootstrap, "--command-config", str(path)]
    result = CliRunner().invoke(app, ["groups", *words, *more])
    assert result.exit_code == 0, result.output


BY_COMMAND = f'User:{ADMIN} from 127.0.0.1, client id "sidecar-groups"'


def test_adopt_and_release(place: Place) -> None:
    run(place, "adopt", "theirs")
    run(place, "release", "theirs")
    assert reasons(place, CONFIG, "theirs", "sidecar.managed") == [f"changed by {BY_COMMAND}"] * 2


def test_rebalance_and_delete(place: Place) -> None:
    kafka, ground = place
    how = ground.client(ADMIN, ground.clients, "SCRAM-SHA-256")
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "managed-live", "group.protocol": "consumer", **how}
    member = Consumer({**config, "log_level": 2})

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    try:
        member.subscribe(["orders"])
        wait_until("an assignment", assigned, 30)
        run(place, "rebalance", "managed-live", "--reason", "lag is uneven")
        shown = kafka.get(kafka.nodes[0], "/api/v1/group?" + urllib.parse.urlencode({"id": "managed-live"}))
        assert shown["rebalances"][0]["why"].startswith(f"lag is uneven (changed by {BY_COMMAND}, 20")
        assert shown["rebalances"][-1]["joined"]["count"] == 1
    finally:
        member.close()
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


def test_no_secret_came_into_records_or_log(place: Place) -> None:
    kafka, _ = place
    sidecar = kafka.nodes[0].sidecar
    assert sidecar is not None
    text = sidecar.log.read_text() + json.dumps(told(place, StateCodec()), default=str)
    assert "sidecar-groups" in text and "S3CRET" not in text
