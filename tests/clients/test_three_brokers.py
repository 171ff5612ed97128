"""Ownership among three sidecars: orderly end, sudden death, and an owner that was asleep."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, Process, free_ports, port_open, wait_until
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.state.codec import owner_epoch_of
from sidecar.state.keys import decode_key
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import metadata as md
from tests.clients.ground import make_topic
from tests.clients.wire import join_request, talk
from tests.security.raw import RawClient

GROUP = "managed-trio"


async def heartbeat(conn: BrokerConnection, member: str, epoch: int) -> tuple[int, int]:
    req = join_request(GROUP, member, ["t3"]) if epoch == 0 else ch.ConsumerGroupHeartbeatRequest(GROUP, member, epoch)
    res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
    return res.error_code, res.member_epoch


def until_accepted(kafka: LocalKafka, skip: int, member: str, epoch: int, timeout_s: float = 120) -> int:
    """Heartbeat at whoever owns the group until one is accepted; returns the member epoch."""
    end = time.monotonic() + timeout_s
    code = -1
    while time.monotonic() < end:
        try:
            owner = kafka.owner_of(GROUP, skip=skip)
            if owner.node_id != skip:
                code, now = talk(kafka, lambda c: heartbeat(c, member, epoch), node=owner.node_id - 1)
                if code == Code.NONE:
                    return now
        except (ConnectionLost, TimeoutError):
            code = -1
        except DrillError:
            code = -2  # no sidecar knows the owner now
        time.sleep(0.05)
    raise AssertionError(f"no heartbeat accepted, last code {code}")


def state_records(kafka: LocalKafka, partition: int) -> list[tuple[str, int]]:
    """(kind, owner epoch) of every record of one state partition, in order."""
    c = Consumer(
        {"bootstrap.servers": kafka.internal, "group.id": "reader", "enable.partition.eof": True, "log_level": 3}
    )
    c.assign([TopicPartition("__group_state", partition, OFFSET_BEGINNING)])
    found: list[tuple[str, int]] = []
    while True:
        m = c.poll(20)
        assert m is not None
        if m.error() is not None:
            break
        raw, value = m.key(), m.value()
        assert isinstance(raw, bytes)
        key = decode_key(raw)
        if key.kind != "schema" and isinstance(value, bytes):
            found.append((key.kind, owner_epoch_of(value)))
    c.close()
    return found


def test_sigterm_gives_up_ownership_and_ends_the_process(trio: LocalKafka) -> None:
    make_topic(trio, "t3", 4)
    time.sleep(1)  # the sidecars read the topics every 0.3 s; a later look would bump the epoch
    owner = trio.owner_of(GROUP)
    _, epoch = talk(trio, lambda c: heartbeat(c, "m", 0), node=owner.node_id - 1)
    assert owner.sidecar is not None
    assert owner.sidecar.stop(timeout_s=60) == 0
    assert "stopped" in owner.sidecar.tail(3)
    assert until_accepted(trio, owner.node_id, "m", epoch) == epoch
    trio.start_sidecar(owner)
    trio.wait_ready()
    wait_until("it to be back beside the leader", lambda: trio.owner_of(GROUP).node_id == owner.node_id, 60)


def test_an_owner_that_slept_past_its_session_answers_not_coordinator_and_writes_nothing(trio: LocalKafka) -> None:
    owner = trio.owner_of(GROUP)
    assert owner.sidecar is not None
    partition = partition_for(GROUP, 50)
    _, epoch = talk(trio, lambda c: heartbeat(c, "m", 0), node=owner.node_id - 1)

    async def sleeper(conn: BrokerConnection) -> list[int]:
        """Requests that reach the sleeper while it sleeps are the first thing it sees when it wakes."""
        assert owner.sidecar is not None
        owner.sidecar.signal(signal.SIGSTOP)
        waiting = [asyncio.create_task(heartbeat(conn, f"new-{i}", 0)) for i in range(5)]
        await asyncio.to_thread(until_accepted, trio, owner.node_id, "m", epoch, 30)
        owner.sidecar.signal(signal.SIGCONT)
        return [code for code, _ in await asyncio.gather(*waiting)]

    codes = talk(trio, sleeper, node=owner.node_id - 1)
    assert set(codes) == {Code.NOT_COORDINATOR}
    trio.wait_ready(90)
    records = state_records(trio, partition)
    claimed = -1
    for kind, owner_epoch in records:
        if kind == "owner_claim":
            claimed = max(claimed, owner_epoch)
        else:
            assert owner_epoch >= claimed, "a write of an owner before the last claim"
    assert sum(kind == "owner_claim" for kind, _ in records) >= 3


def test_sudden_death_moves_the_group_with_its_state(trio: LocalKafka) -> None:
    owner = trio.owner_of(GROUP)
    assert owner.sidecar is not None
    epoch = until_accepted(trio, -1, "m", 0)
    owner.sidecar.kill()
    owner.sidecar = None
    assert until_accepted(trio, owner.node_id, "m", epoch) == epoch
    trio.start_sidecar(owner)
    trio.wait_ready()


def restart_broker(kafka: LocalKafka, node: Broker) -> None:
    """Start it again, and wait until every sidecar has seen it."""
    kafka.start_broker(node)

    async def brokers(conn: BrokerConnection) -> int:
        return len((await conn.request(md, "Metadata", md.MetadataRequest(topics=[]))).brokers)

    wait_until("the broker to be back", lambda: port_open(node.clients_port), 120)
    for other in range(3):
        wait_until("all to know it", lambda n=other: talk(kafka, brokers, node=n) == 3, 120)  # type: ignore[misc]
    kafka.wait_ready()


def test_when_the_broker_dies_its_client_connections_are_closed_and_its_sidecar_owns_nothing(trio: LocalKafka) -> None:
    node = trio.owner_of(GROUP)
    assert node.process is not None
    epoch = until_accepted(trio, -1, "m", 0)
    with socket.create_connection(("127.0.0.1", node.sidecar_port), timeout=30) as s:
        s.sendall(request_frame(3, 9, 1, "c", True, md.MetadataRequest(topics=[]).encode(9)))
        assert s.recv(4)
        node.process.kill()
        while s.recv(65_536):
            pass  # the rest of the answer, then the end
    assert until_accepted(trio, node.node_id, "m", epoch, 60) == epoch
    wait_until("the sidecar to say why", lambda: trio.get(node, "/readyz") is None, 120)
    # If the dead broker coordinated the owners' group, too, nobody can tell it before its lease has run out.
    wait_until("it to own nothing", lambda: (trio.owners(node) or {}).get("active") == [], 120)
    restart_broker(trio, node)


def run_sidecar(folder: Path, *args: str, **env: str) -> tuple[int | None, str]:
    p = Process("lonely", [sys.executable, "-m", "sidecar.cli.main", "run", *args], folder / "lonely.log", env).start()
    end = time.monotonic() + 20
    while p.alive and time.monotonic() < end:
        time.sleep(0.05)
    p.kill()
    return p.returncode, p.log.read_text()


def test_without_a_broker_it_says_so_and_gives_up_after_a_while(tmp_path: Path) -> None:
    listen, broker = free_ports(2)
    args = ["--listen", f"127.0.0.1:{listen}", "--broker", f"127.0.0.1:{broker}", "--node-id", "1"]
    code, log = run_sidecar(tmp_path, *args, SIDECAR_BROKER_WAIT_MS="1000")
    assert code == 1
    assert "waiting for the broker" in log
    assert re.search(r"sidecar: no use of broker 127\.0\.0\.1:\d+ for 1 s: .*refused.*Check --broker", log)


def test_a_node_id_that_is_no_broker_keeps_the_port_open(trio: LocalKafka, tmp_path: Path) -> None:
    """Requests that need no coordinator pass for longer than `broker_wait_ms`. Managed groups are not served, and not
    passed on either."""
    listen, admin_port = free_ports(2)
    broker, wait_ms = f"127.0.0.1:{trio.nodes[0].clients_port}", 1_000
    args = ["--listen", f"127.0.0.1:{listen}", "--broker", broker, "--node-id", "77"]
    env = {"SIDECAR_BROKER_WAIT_MS": str(wait_ms), "SIDECAR_ADMIN": f"127.0.0.1:{admin_port}"}
    env["SIDECAR_GROUPS__INCLUDE"] = '["managed-.*"]'
    log = tmp_path / "lonely.log"
    process = Process("lonely", [sys.executable, "-m", "sidecar.cli.main", "run", *args], log, env).start()
    said = "node id 77 is not among the brokers [1, 2, 3]. Check --node-id and --broker"
    try:
        wait_until("the log to say it", lambda: log.exists() and said in log.read_text(), 60, [process])
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{listen}", "log_level": 2})
        began = time.monotonic()
        while time.monotonic() < began + 3 * wait_ms / 1000:
            assert admin.list_topics(timeout=30).topics
        ready = urllib.request.Request(f"http://127.0.0.1:{admin_port}/readyz")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(ready, timeout=30)
        assert said in refused.value.read().decode()
        client = RawClient(listen)
        found = client.call(fc, "FindCoordinator", 10, 4, fc.FindCoordinatorRequest("", 0, [GROUP]), flexible=True)
        assert found.coordinators[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        client.close()
        assert process.alive
    finally:
        process.kill()


def test_bad_settings_are_listed_and_nothing_starts(tmp_path: Path) -> None:
    code, log = run_sidecar(tmp_path, "--listen", "x", "--node-id", "-4", SIDECAR_NONSENSE="1")
    assert code == 2
    for word in ("listen", "broker: Field required", "node_id", "SIDECAR_NONSENSE"):
        assert word in log


def test_a_port_in_use_is_a_clear_line(trio: LocalKafka, tmp_path: Path) -> None:
    n = trio.nodes[0]
    args = ["--listen", f"127.0.0.1:{n.sidecar_port}", "--broker", f"127.0.0.1:{n.clients_port}", "--node-id", "1"]
    code, log = run_sidecar(tmp_path, *args)
    assert code == 1 and "cannot listen on" in log
