"""Faults of sidecars and of who owns what, and the alerts that they raise."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer

from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.processes import wait_until
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.keys import encode_key
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.wire import join_request, owner_node, talk
from tests.see.ground import CLASSIC, MODERN, PARTITIONS, STATE, TOPIC, TRANSACTIONS, Ground, other_version

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]
SLOW_S = 6.0


def test_a_sidecar_is_suspended(ground: Ground) -> None:
    node = ground.owner(MODERN)
    assert node.sidecar is not None
    with ground.fault("a sidecar is suspended", "SidecarDown") as fault:
        node.sidecar.signal(signal.SIGSTOP)
        try:
            fault.until_firing()
            served = "count(sum by (partition) (sidecar_partition_owned) == 0) or vector(0)"
            assert ground.prometheus.values(served) == [0]
        finally:
            node.sidecar.signal(signal.SIGCONT)
        ground.kafka.wait_ready()


def test_a_sidecar_does_not_reach_its_broker(ground: Ground) -> None:
    env = {"SIDECAR_BROKER": "127.0.0.1:1", "SIDECAR_BROKER_WAIT_MS": "0"}
    with ground.replaced_sidecar("no broker", ground.owner(CLASSIC), env, "SidecarNotReady") as fault:
        fault.until_firing()


def test_a_sidecar_has_other_patterns_another_version_and_a_certificate_that_ends_tomorrow(
    ground: Ground, tmp_path: Path
) -> None:
    papers = trustme.CA().issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=1))
    papers.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "sidecar.pem"))
    env = {
        "SIDECAR_TLS__CERTIFICATE": str(tmp_path / "sidecar.pem"),
        "SIDECAR_GROUPS__INCLUDE": '["managed.*", "others.*"]',
    }
    fires = ("SidecarCertificateExpires", "SidecarVersionsDiffer", "SidecarPatternsDiffer")
    node = ground.kafka.nodes[2]
    ground.kafka.trees[node.node_id] = other_version(tmp_path / "other")
    with ground.replaced_sidecar("another sidecar", node, env, *fires) as fault:
        fault.until_firing()
        del ground.kafka.trees[node.node_id]


def test_another_fleet_has_a_state_topic_of_its_own(ground: Ground) -> None:
    env = {"SIDECAR_OWNERSHIP__GROUP": "__other_owners", "SIDECAR_STATE__TOPIC": "__other_state"}
    with (
        ground.fault("two state topics", "SidecarPartitionWithTwoOwners") as fault,
        ground.one_more(ground.kafka.nodes[0], env),
    ):
        fault.until_firing()


def test_another_fleet_takes_the_same_state_topic(ground: Ground) -> None:
    """Each shuts the other one out, again and again: there is one owner at any moment, and soon another one."""
    with ground.fault("two fleets", "SidecarFenced") as fault:
        with ground.one_more(ground.kafka.nodes[0], {"SIDECAR_OWNERSHIP__GROUP": "__other_owners"}):
            fault.until_firing()
        ground.kafka.wait_ready()


def test_somebody_takes_the_fence_of_a_partition(ground: Ground) -> None:
    """As another program does that uses its transactional id, here for a tombstone of what never was. The owner finds
    that out with its next write."""
    group = "managed-fenced"
    partition = partition_for(group, PARTITIONS)
    with ground.fault("fenced", "SidecarFenced") as fault:
        intruder = Producer(
            {"bootstrap.servers": ground.kafka.internal, "transactional.id": f"{STATE}-{partition}", "log_level": 2}
        )
        intruder.init_transactions(20)
        intruder.begin_transaction()
        intruder.produce(STATE, None, encode_key(OWNER_CLAIM, "", f"{1:020d}"), partition)
        intruder.commit_transaction(20)
        join = join_request(group, "writes", [TOPIC])
        talk(ground.kafka, lambda c: c.request(ch, "ConsumerGroupHeartbeat", join), owner_node(ground.kafka, group))
        fault.until_firing()
        ground.kafka.wait_ready()


def test_no_fence_can_be_had_and_an_owner_dies(ground: Ground) -> None:
    """No record can be written to __transaction_state: the next owner cannot shut the former owner out."""
    fires = ("SidecarPartitionWithoutOwner", "SidecarTakeoverSlow")
    with ground.fault("no fence", *fires) as fault:
        ground.alter(TRANSACTIONS, "max.message.bytes", "1")
        try:
            ground.start_anew(ground.owner(CLASSIC))
            fault.until_firing("SidecarPartitionWithoutOwner")
            begun = time.monotonic()
            wait_until("more than a takeover may take", lambda: time.monotonic() > begun + SLOW_S, SLOW_S + 5)
        finally:
            ground.alter(TRANSACTIONS, "max.message.bytes", "")
        fault.until_firing("SidecarTakeoverSlow")
        ground.kafka.wait_ready()
