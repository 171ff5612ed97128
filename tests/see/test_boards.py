"""A real Prometheus scrapes three real sidecars, with clients of both protocols: every panel shows something, no alert
fires; then one fault after the other, and the alerts that belong to it.

Alerts that say how busy this machine is are not judged here. promtool tries those, and the others, in test_alerts.py.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from sidecar.audit.continuous import Metrics as AuditMetrics
from sidecar.audit.source_lag import Lag
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, wait_until
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.conftest import ENV, make_topic
from tests.clients.wire import join_request, owner_node, talk
from tests.see.prometheus import LEFT_OUT, Prometheus
from tools.alerts import rules
from tools.boards import queries

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(480),
    pytest.mark.skipif(LEFT_OUT, reason="SEE_WITHOUT_PROMETHEUS=1"),
]
SEE = {**ENV, "SIDECAR_EXPORTER__INTERVAL_MS": "2000"}
TOPIC, MODERN, CLASSIC = "boards", "managed-boards-modern", "managed-boards-classic"
MACHINE = {"SidecarLoopLag", "SidecarAppendSlow", "SidecarTakeoverSlow"}
"""They tell of this machine, on which everything runs at once."""
MOVING = {"SidecarDown", "SidecarFenced", "SidecarPartitionWithTwoOwners", "SidecarNotReady", *MACHINE}
"""Where a sidecar goes or comes."""
AFTER_A_TAKEOVER = ("failover: Time of takeovers", "failover: Time to a placeholder")
"""They look back at what happened before Prometheus was there."""


@dataclass
class Ground:
    kafka: LocalKafka
    prometheus: Prometheus
    audit: AuditMetrics
    stopped: threading.Event = field(default_factory=threading.Event)

    def calm(self, tolerated: set[str] = MACHINE) -> None:
        self.prometheus.until_firing((), tolerated, 90)


def consume(kafka: LocalKafka, group: str, protocol: str, stopped: threading.Event) -> None:
    modern = {"group.protocol": "consumer"}
    old = {"group.protocol": "classic", "heartbeat.interval.ms": 500, "session.timeout.ms": 6_000}
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "log_level": 2,
            **(modern if protocol == "consumer" else old),
        }
    )
    consumer.subscribe([TOPIC])
    while not stopped.is_set():
        consumer.poll(0.2)
    consumer.close()


def produce(kafka: LocalKafka, stopped: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": kafka.internal, "log_level": 2})
    sent = 0
    while not stopped.wait(0.05):
        sent += 1
        producer.produce(TOPIC, str(sent).encode(), partition=sent % 6)
        producer.poll(0)
    producer.flush(10)


def visit(kafka: LocalKafka, stopped: threading.Event) -> None:
    """A new group forms and ends every few seconds: else there would be no rebalances and no appends to show."""

    async def come_and_go(conn: BrokerConnection, group: str) -> None:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "visitor", [TOPIC]))
        for _ in range(3):
            beat = ch.ConsumerGroupHeartbeatRequest(group, "visitor", max(res.member_epoch, 0))
            res = await conn.request(ch, "ConsumerGroupHeartbeat", beat)
            await asyncio.sleep(0.3)
        await conn.request(ch, "ConsumerGroupHeartbeat", ch.ConsumerGroupHeartbeatRequest(group, "visitor", -1))

    visits = 0
    while not stopped.wait(2):
        visits += 1
        group = f"managed-visit-{visits}"
        try:
            talk(kafka, partial(come_and_go, group=group), owner_node(kafka, group))
        except (ConnectionLost, TimeoutError, DrillError):
            continue  # its sidecar is the one to which something happens


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("see")
    audit = AuditMetrics()
    audit.told([Lag(partition=0, behind=10, gone=0, age_ms=1_000, allowed_ms=100_000)])
    audit.ok.set(1)
    audit_port = audit.serve("127.0.0.1", 0)
    with LocalKafka(folder / "kafka", sidecar_env=dict(SEE)) as kafka:
        kafka.wait_ready()
        make_topic(kafka, TOPIC, 6)
        jobs = {
            "kafka-group-sidecar": [f"127.0.0.1:{n.admin_port}" for n in kafka.nodes],
            "group-state-audit": [f"127.0.0.1:{audit_port}"],
        }
        stopped = threading.Event()
        work = [threading.Thread(target=f, args=(kafka, stopped), daemon=True) for f in (produce, visit)]
        for group, protocol in ((MODERN, "consumer"), (CLASSIC, "classic")):
            work += [
                threading.Thread(target=consume, args=(kafka, group, protocol, stopped), daemon=True) for _ in range(2)
            ]
        for thread in work:
            thread.start()
        try:
            with Prometheus(folder / "prometheus", jobs, rules()) as prometheus:
                yield Ground(kafka, prometheus, audit, stopped)
        finally:
            stopped.set()
            for thread in work:
                thread.join(timeout=30)


def empty_panels(ground: Ground, but: tuple[str, ...] = ()) -> list[str]:
    asked = [(title, q) for title, q in queries() if not title.endswith(but)] if but else queries()
    return [f"{title}: {query}" for title, query in asked if not ground.prometheus.values(query)]


def until_full(ground: Ground, but: tuple[str, ...] = ()) -> None:
    end = time.monotonic() + 60
    while missing := empty_panels(ground, but):
        assert time.monotonic() < end, "\n".join(missing)
        time.sleep(1)


def owner(ground: Ground, group: str) -> Broker:
    return ground.kafka.nodes[owner_node(ground.kafka, group)]


# ---- without faults -------------------------------------------------------------------------------------------------
def test_every_panel_shows_something_and_no_alert_fires(ground: Ground) -> None:
    until_full(ground, AFTER_A_TAKEOVER)
    ground.calm()
    time.sleep(10)
    assert ground.prometheus.firing() <= MACHINE


def test_sums_over_the_sidecars_count_everything_once(ground: Ground) -> None:
    values = ground.prometheus.values
    assert values("count(kafka_brokers)") == [1] and values("sum(kafka_brokers)") == [3]
    for group in (MODERN, CLASSIC):
        assert values(f'count(kafka_consumergroup_members{{consumergroup="{group}"}})') == [1]
        assert values(f'sum(kafka_consumergroup_members{{consumergroup="{group}"}})') == [2]
        assert values(f'count(kafka_consumergroup_lag{{consumergroup="{group}"}})') == [6]
        assert values(f'sum(kafka_consumergroup_lag_sum{{consumergroup="{group}"}})')[0] < 1_000
    assert values(f'count(kafka_topic_partition_current_offset{{topic="{TOPIC}"}})') == [6]
    committed = values(f'sum(kafka_consumergroup_current_offset_sum{{consumergroup="{MODERN}"}})')[0]
    assert 0 < committed <= produced(ground.kafka)
    topic = f'sum(kafka_topic_partition_current_offset{{topic="{TOPIC}"}})'
    # What Prometheus has of the topic may be of an earlier scrape than what it has of the group.
    wait_until("the ends of the topic", lambda: values(topic)[0] >= committed, 20, step_s=0.5)
    assert values(topic)[0] <= produced(ground.kafka)
    assert values("sum(sidecar_owned_partitions)") == [50]
    assert values("sum by (partition) (sidecar_partition_owned)") == [1] * 50


def produced(kafka: LocalKafka) -> int:
    """The sum of the topic's end offsets."""
    consumer = Consumer({"bootstrap.servers": kafka.internal, "group.id": "nobody", "log_level": 2})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1] for p in range(6))
    finally:
        consumer.close()


# ---- faults ---------------------------------------------------------------------------------------------------------
def test_the_audit_falls_behind_fails_and_finds_something(ground: Ground) -> None:
    audit = ground.audit
    audit.told([Lag(partition=0, behind=10, gone=3, age_ms=60_000, allowed_ms=100_000)])
    audit.ok.set(0)
    audit.findings.set(1)
    alerts = ("AuditFallsBehind", "AuditFails", "AuditFindings", "AuditLostRecords")
    ground.prometheus.until_firing(alerts, MACHINE)
    audit.told([Lag(partition=0, behind=10, gone=0, age_ms=1_000, allowed_ms=100_000)])
    audit.ok.set(1)
    audit.findings.set(0)
    ground.calm()


def test_the_state_topic_is_set_so_that_it_may_lose_state(ground: Ground) -> None:
    alter(ground.kafka, "min.insync.replicas", "1")
    ground.prometheus.until_firing(("SidecarStateTopicFaults",), MACHINE)
    alter(ground.kafka, "min.insync.replicas", "2")
    ground.calm()


def alter(kafka: LocalKafka, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__group_state", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=20)


def test_commits_of_strangers_are_refused(ground: Ground) -> None:
    admin = AdminClient({"bootstrap.servers": ground.kafka.bootstrap, "log_level": 3})
    refused, end = 0, time.monotonic() + 60
    while "SidecarCommitsRefused" not in ground.prometheus.firing():
        assert time.monotonic() < end, f"after {refused} refused commits"
        offsets = [ConsumerGroupTopicPartitions(MODERN, [TopicPartition(TOPIC, 0, 1)])]
        for future in admin.alter_consumer_group_offsets(offsets).values():
            with pytest.raises(KafkaException):
                raise_of(future.result(timeout=20))
            refused += 1
    ground.prometheus.until_firing(("SidecarCommitsRefused",), MACHINE)
    ground.calm()


def raise_of(result: ConsumerGroupTopicPartitions) -> None:
    """The error may be that of a partition."""
    for p in result.topic_partitions or ():
        if p.error is not None:
            raise KafkaException(p.error)


def test_a_sidecar_is_suspended(ground: Ground) -> None:
    node = owner(ground, MODERN)
    assert node.sidecar is not None
    node.sidecar.signal(signal.SIGSTOP)
    try:
        ground.prometheus.until_firing(("SidecarDown",), MOVING)
        assert ground.prometheus.values("count(sum by (partition) (sidecar_partition_owned) == 0) or vector(0)") == [0]
    finally:
        node.sidecar.signal(signal.SIGCONT)
    ground.calm(MACHINE)


@contextmanager
def instead(ground: Ground, node: Broker, env: Mapping[str, str]) -> Iterator[None]:
    """The sidecar of this node is killed and started with other settings; then with its own."""
    assert node.sidecar is not None
    node.sidecar.kill()
    ground.prometheus.until_firing(("SidecarDown",), MOVING)
    ground.kafka.sidecar_env = {**SEE, **env}
    ground.kafka.start_sidecar(node)
    try:
        yield
    finally:
        ground.kafka.sidecar_env = dict(SEE)
        node.sidecar.kill()
        ground.kafka.start_sidecar(node)
        ground.kafka.wait_ready()
    ground.calm()


def test_a_sidecar_dies_and_does_not_become_ready(ground: Ground) -> None:
    node = owner(ground, CLASSIC)
    with instead(ground, node, {"SIDECAR_BROKER": "127.0.0.1:1", "SIDECAR_BROKER_WAIT_MS": "0"}):
        ground.prometheus.until_firing(("SidecarNotReady",), {"SidecarFenced", *MACHINE})
    until_full(ground)


def test_a_sidecar_has_other_patterns_and_small_limits(ground: Ground) -> None:
    env = {
        "SIDECAR_GROUPS__INCLUDE": '["managed.*", "others.*"]',
        "SIDECAR_EXPORTER__SERIES": "3",
        "SIDECAR_LIMITS__CONNECTIONS": "5",
    }
    node = owner(ground, MODERN)
    with instead(ground, node, env):
        held = [hold(node.sidecar_port) for _ in range(5)]
        try:
            alerts = ("SidecarPatternsDiffer", "SidecarExporterCut", "SidecarConnections")
            ground.prometheus.until_firing(alerts, {"SidecarFenced", *MACHINE})
        finally:
            for conn in held:
                conn.close()


def hold(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_group_rebalances_again_and_again(ground: Ground) -> None:
    """The last one: it is remembered for ten minutes."""

    async def storm(conn: BrokerConnection) -> None:
        for i in range(12):
            member = f"comes-and-goes-{i}"
            await conn.request(ch, "ConsumerGroupHeartbeat", join_request("managed-storm", member, [TOPIC]))
            leave = ch.ConsumerGroupHeartbeatRequest("managed-storm", member, -1)
            await conn.request(ch, "ConsumerGroupHeartbeat", leave)

    talk(ground.kafka, storm, owner_node(ground.kafka, "managed-storm"))
    ground.prometheus.until_firing(("SidecarRebalanceStorm",), MACHINE)
    named = ground.prometheus.get("query", query="sidecar_group_rebalances > 20")["result"]
    assert [r["metric"]["consumergroup"] for r in named] == ["managed-storm"]
