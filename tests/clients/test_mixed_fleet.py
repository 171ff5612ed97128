"""One broker has a sidecar and the other has none: what docs/operate/procedures.md says of such a fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.members import ClassicSpeaker, ConsumerSpeaker
from sidecar.drill.processes import wait_until
from sidecar.kafka.cluster import Cluster
from sidecar.wire.generated import describe_groups as dg
from tests.clients.ground import ENV

pytestmark = [pytest.mark.tier("all"), pytest.mark.timeout(120)]
PARTITIONS = 50
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Two brokers; the second one has no sidecar."""
    cluster = LocalKafka(tmp_path_factory.mktemp("mixed"), brokers=2, sidecar_env=ENV)
    cluster.bare = {2}
    try:
        cluster.start_brokers()
        cluster.start_sidecar(cluster.nodes[0])
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()


def cluster_of(node: Broker) -> Cluster:
    return Cluster([("127.0.0.1", node.sidecar_port)], "mixed", {})


def led_by(kafka: LocalKafka, node_id: int, prefix: str) -> str:
    """A group whose offsets this broker keeps."""
    admin = AdminClient({"bootstrap.servers": kafka.internal})
    leaders = admin.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions
    names = (f"{prefix}-{n}" for n in range(1_000))
    return next(g for g in names if leaders[partition_for(g, PARTITIONS)].leader == node_id)


async def coordinators(kafka: LocalKafka, group: str) -> list[int]:
    """Returns the coordinators that the first broker's sidecar and the second broker name."""
    found = []
    for node in kafka.nodes:
        cluster = cluster_of(node)
        try:
            found.append(await cluster.coordinator_node(group, 0))
        finally:
            cluster.close()
    return found


async def heartbeats_until(
    node: Broker, speaker: ConsumerSpeaker | ClassicSpeaker, wanted: Code, seconds: float = 20
) -> list[str]:
    """Heartbeat at the coordinator that this address names until it answers so; what it said before that."""
    cluster, until = cluster_of(node), time.monotonic() + seconds
    heard: list[str] = []
    try:
        while time.monotonic() < until:
            conn = await cluster.coordinator(speaker.group, 0)
            code = Code(await speaker.heartbeat(conn))
            if code == wanted:
                return heard
            heard.append(code.name)
            await asyncio.sleep(0.2)
    finally:
        cluster.close()
    raise AssertionError(f"never {wanted.name}, but {heard}")


def test_a_group_that_nobody_manages_has_one_coordinator(mixed: LocalKafka) -> None:
    for node in mixed.nodes:
        group = led_by(mixed, node.node_id, "native")
        assert asyncio.run(coordinators(mixed, group)) == [node.node_id] * 2
        for through in mixed.nodes:
            member = ConsumerSpeaker(group)
            member.member_id = f"through-{through.node_id}"
            assert asyncio.run(heartbeats_until(through, member, Code.NONE)) == []


async def state_at(node: Broker, group: str) -> str:
    """Returns the state of the broker's own group of this name."""
    cluster = cluster_of(node)
    conn = await cluster.coordinator(group, 0)
    (g,) = (await conn.request(dg, "DescribeGroups", dg.DescribeGroupsRequest(groups=[group]))).groups
    cluster.close()
    return str(g.group_state)


def test_a_managed_group_has_two_where_its_broker_has_no_sidecar(mixed: LocalKafka) -> None:
    """Two coordinators must be avoided. A member that comes to the wrong one is refused, and owns nothing twice."""
    group = led_by(mixed, 2, "managed-apart")
    assert asyncio.run(coordinators(mixed, group)) == [1, 2]

    inside = ConsumerSpeaker(group)
    asyncio.run(heartbeats_until(mixed.nodes[0], inside, Code.NONE))
    wait_until("the placeholder", lambda: asyncio.run(state_at(mixed.nodes[1], group)) == "Stable", 20)

    async def both() -> None:
        await heartbeats_until(mixed.nodes[1], ClassicSpeaker(group), Code.INCONSISTENT_GROUP_PROTOCOL)
        await heartbeats_until(mixed.nodes[1], ConsumerSpeaker(group), Code.GROUP_ID_NOT_FOUND)
        assert await heartbeats_until(mixed.nodes[0], inside, Code.NONE) == []

    asyncio.run(both())


def test_a_managed_group_has_one_where_its_broker_has_a_sidecar(mixed: LocalKafka) -> None:
    group = led_by(mixed, 1, "managed-home")
    assert asyncio.run(coordinators(mixed, group)) == [1, 1]
