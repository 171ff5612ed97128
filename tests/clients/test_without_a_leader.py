"""Acknowledged records are on as many replicas as must be in sync, and each of them tells the end of its log. So a
sidecar knows that it has read everything also while a partition of the state topic has no leader
(docs/design/decisions.md, Read index)."""

from __future__ import annotations

import time

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from tests.clients.test_three_brokers import restart_broker
from tests.clients.wire import talk

pytestmark = pytest.mark.tier("all")
STATE = "__group_state"
CONSUMER, DEBUGGING = -1, -2
JOINS_S = 8.0
"""Seconds for a join: fewer than the 9 s for which no controller notices that the broker is dead."""


async def end_of(conn: BrokerConnection, replica_id: int) -> tuple[int, int]:
    """Returns the end of partition 0 of the state topic: (error code, offset)."""
    topic = lo.ListOffsetsTopic(STATE, [lo.ListOffsetsPartition(0, timestamp=-1)])
    res = await conn.request(lo, "ListOffsets", lo.ListOffsetsRequest(replica_id=replica_id, topics=[topic]), high=7)
    told = res.topics[0].partitions[0]
    return told.error_code, told.offset


async def leader(conn: BrokerConnection) -> int:
    res = await conn.request(md, "Metadata", md.MetadataRequest(topics=[md.MetadataRequestTopic(name=STATE)]))
    return int(min(res.topics[0].partitions, key=lambda p: p.partition_index).leader_id)


async def coordinators(conn: BrokerConnection) -> dict[str, int]:
    """Returns the coordinators of some groups of the broker."""
    groups = [f"native-{i}" for i in range(20)]
    res = await conn.request(fc, "FindCoordinator", fc.FindCoordinatorRequest(key_type=0, coordinator_keys=groups))
    return {c.key: c.node_id for c in res.coordinators if c.error_code == Code.NONE}


async def join(conn: BrokerConnection, group: str) -> int:
    req = jg.JoinGroupRequest(
        group, 10_000, 10_000, "", protocol_type="consumer", protocols=[jg.JoinGroupRequestProtocol("range", b"")]
    )
    return int((await conn.request(jg, "JoinGroup", req, high=9)).error_code)


def test_followers_tell_the_end_of_their_log_to_who_asks_as_a_replica(trio: LocalKafka) -> None:
    asked = sorted(talk(trio, lambda c: end_of(c, CONSUMER), node=n, direct=True)[0] for n in range(3))
    assert asked == [Code.NONE, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER]

    def alike() -> bool:
        told = {talk(trio, lambda c: end_of(c, DEBUGGING), node=n, direct=True) for n in range(3)}
        assert {code for code, _ in told} == {Code.NONE}
        return len(told) == 1 and min(told)[1] > 0

    wait_until("all logs to have the same end", alike, 10)


def test_groups_of_living_brokers_take_members_in_while_the_patterns_have_no_leader(trio: LocalKafka) -> None:
    dies = talk(trio, leader)
    keepers = talk(trio, coordinators)
    group = next(g for g, n in keepers.items() if n != dies)
    node = trio.nodes[dies - 1]
    assert node.process is not None
    node.process.kill()
    killed = time.monotonic()

    def joined() -> bool:
        return talk(trio, lambda c: join(c, group), node=keepers[group] - 1) == Code.MEMBER_ID_REQUIRED

    wait_until("the group to let a member in", joined, JOINS_S)
    assert talk(trio, leader, node=keepers[group] - 1) == dies, "it has a leader again, and nothing is shown"
    assert time.monotonic() - killed < JOINS_S
    restart_broker(trio, node)
