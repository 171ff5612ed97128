"""The sidecar's own wire client as a test client: one coroutine, run to its end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_groups as lg

T = TypeVar("T")


def talk(
    kafka: LocalKafka, conversation: Callable[[BrokerConnection], Awaitable[T]], node: int = 0, direct: bool = False
) -> T:
    """Runs `conversation(connection)` on one connection to a sidecar, or to its broker: always where there are no
    sidecars."""
    n = kafka.nodes[node]
    port = n.clients_port if direct or kafka.front == "none" else n.sidecar_port

    async def run() -> T:
        conn = await BrokerConnection.open("127.0.0.1", port, "test")
        try:
            return await conversation(conn)
        finally:
            conn.close()

    return asyncio.run(run())


def reset(conn: BrokerConnection) -> None:
    """Gone as a client is that crashed: what it asked for is of no use to it any more."""
    transport = conn._transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def join_request(group: str, member: str, topics: list[str]) -> ch.ConsumerGroupHeartbeatRequest:
    return ch.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )


def session_of(kafka: LocalKafka, group: str, timeout_ms: int, heartbeat_ms: int = 300) -> None:
    """Sets session timeout and heartbeat interval of one group of the consumer protocol."""
    settings = {"consumer.session.timeout.ms": timeout_ms, "consumer.heartbeat.interval.ms": heartbeat_ms}

    async def alter(conn: BrokerConnection) -> int:
        configs = [ia.AlterableConfig(name, 0, str(value)) for name, value in settings.items()]
        req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(32, group, configs)])
        return int((await conn.request(ia, "IncrementalAlterConfigs", req)).responses[0].error_code)

    assert talk(kafka, alter) == 0


def owner_node(kafka: LocalKafka, group: str) -> int:
    """Index of the node whose sidecar owns the group."""
    return kafka.nodes.index(kafka.owner_of(group))


def listed_type(kafka: LocalKafka, group: str) -> tuple[str, str]:
    """Type and state of the group, as its owner lists it."""

    async def ask(conn: BrokerConnection) -> lg.ListGroupsResponse:
        answer: lg.ListGroupsResponse = await conn.request(lg, "ListGroups", lg.ListGroupsRequest())
        return answer

    listed = {g.group_id: g for g in talk(kafka, ask, node=owner_node(kafka, group)).groups}
    return listed[group].group_type, listed[group].group_state


def describe(kafka: LocalKafka, group: str) -> cd.DescribedGroup:
    async def ask(conn: BrokerConnection) -> cd.DescribedGroup:
        res = await conn.request(cd, "ConsumerGroupDescribe", cd.ConsumerGroupDescribeRequest([group]))
        found: cd.DescribedGroup = res.groups[0]
        return found

    return talk(kafka, ask, node=owner_node(kafka, group))


def described(kafka: LocalKafka, group: str) -> dg.DescribedGroup:
    """A classic group."""

    async def ask(conn: BrokerConnection) -> dg.DescribedGroup:
        res = await conn.request(dg, "DescribeGroups", dg.DescribeGroupsRequest([group]))
        found: dg.DescribedGroup = res.groups[0]
        return found

    return talk(kafka, ask, node=owner_node(kafka, group))
