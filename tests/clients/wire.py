"""The sidecar's own wire client as a test client: one coroutine, run to its end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_heartbeat as ch

T = TypeVar("T")


def talk(
    kafka: LocalKafka, conversation: Callable[[BrokerConnection], Awaitable[T]], node: int = 0, direct: bool = False
) -> T:
    """Run `conversation(connection)` on one connection to a sidecar, or to its broker."""
    n = kafka.nodes[node]
    port = n.clients_port if direct else n.sidecar_port

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
