"""Sends the requests of placeholder members to the brokers of their share groups.

A broker answers the requests of one connection one after the other. Heartbeats share a few connections: they are
answered at once, even while the share coordinator is away. DescribeShareGroupOffsets waits for the share coordinator,
30 to 66 s while that is away, and blocks its connection meanwhile. So each of these has one of a few connections to
itself, and is given up after a second; then that broker gets no such request for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from sidecar.coordinator.clock import now
from sidecar.kafka import share_group
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import SHARE_PLACEHOLDERS, Lane
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.share_group import Initialised
from sidecar.link.ports import Logger
from sidecar.wire.generated import share_group_heartbeat as sh

AT_ONCE = 100
"""Most groups with a request under way at one broker."""
AT_ONCE_ALONE = 8
"""Most requests under way at one broker that have a connection to themselves."""
ANSWER_S = 5.0
QUICK_S, SLOW_MS = 1.0, 30_000
"""Timeout of a question about share state, and the time for which a broker that gave no answer is not asked."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Broker:
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    room_alone: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE_ALONE))
    slow_until_ms: int = 0


class ShareMembership:
    def __init__(self, cluster: Cluster, log: Logger, keeps: Callable[[int, str], bool]) -> None:
        """`keeps(node_id, group_id)`: whether this broker coordinates its group of that name, as far as is known."""
        self._cluster = cluster
        self._log = log
        self._keeps = keeps
        self._brokers: dict[int, _Broker] = {}

    async def heartbeat(
        self, node_id: int, group_id: str, member_id: str, epoch: int, topic_names: tuple[str, ...] | None
    ) -> sh.ShareGroupHeartbeatResponse:
        return await self._ask(
            node_id,
            group_id,
            lambda conn: share_group.heartbeat(conn, group_id, member_id, epoch, topic_names, ANSWER_S),
        )

    async def leave(self, node_id: int, group_id: str, member_id: str) -> None:
        await self._ask(node_id, group_id, lambda conn: share_group.leave(conn, group_id, member_id, ANSWER_S))

    async def assigned(self, node_id: int, group_id: str) -> Initialised:
        return await self._ask(node_id, group_id, lambda conn: share_group.assigned(conn, group_id, ANSWER_S))

    async def placeholders(self, node_id: int, group_id: str) -> list[str]:
        return await self._ask(node_id, group_id, lambda conn: share_group.placeholders(conn, group_id, ANSWER_S))

    async def _ask(self, node_id: int, group_id: str, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        async with self._broker(node_id).room:
            if not self._keeps(node_id, group_id):  # it may have waited for long, if that broker is silent
                raise ConnectionLost("another broker coordinates the group now")
            which = crc32(group_id.encode()) % SHARE_PLACEHOLDERS
            return await ask(await self._cluster.lane(node_id, Lane.SHARE_PLACEHOLDERS, which))

    async def initialised(self, node_id: int, group_id: str) -> Initialised | None:
        """Returns the initialised partitions; None if the broker does not answer in time, or did not lately."""
        broker = self._broker(node_id)
        async with broker.room_alone:
            if now().mono_ms < broker.slow_until_ms:
                return None
            return await self._asked_alone(broker, node_id, group_id)

    async def _asked_alone(self, broker: _Broker, node_id: int, group_id: str) -> Initialised | None:
        conn: BrokerConnection | None = None
        try:
            async with asyncio.timeout(QUICK_S):
                conn = await self._cluster.open(node_id)
                return await share_group.initialised(conn, group_id, QUICK_S)
        except TimeoutError:
            if now().mono_ms >= broker.slow_until_ms:
                broker.slow_until_ms = now().mono_ms + SLOW_MS
                self._log.warning(
                    "share state is not told in time",
                    broker=node_id,
                    group_id=group_id,
                    asked_again_ms=SLOW_MS,
                    hint="look at the leaders of __share_group_state: new partitions of share groups wait for them",
                )
            return None
        finally:
            if conn is not None:
                conn.close()

    def _broker(self, node_id: int) -> _Broker:
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = _Broker()
        return broker
