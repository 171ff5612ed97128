"""One Produce request for many partitions.

A broker works through the requests of one connection one by one, and an acks=all append waits for the followers.
So what gathers for a leader while requests are under way goes out together, on a few connections.
"""

from __future__ import annotations

import asyncio

from sidecar.runtime.cluster import Cluster, ConnectionLost
from sidecar.runtime.net import BrokerConnection
from sidecar.wire.generated import produce as pr
from sidecar.wire.primitives import WireError

CONNECTIONS = 3
"""To each leader: one slow partition delays those of its own request only."""
REQUEST_BYTES = 16 << 20


class _Item:
    __slots__ = ("batch", "future", "partition", "topic")

    def __init__(self, topic: str, partition: int, batch: bytes, future: asyncio.Future[tuple[int, int]]) -> None:
        self.topic, self.partition, self.batch, self.future = topic, partition, batch, future


class _Leader:
    def __init__(self, cluster: Cluster, node_id: int, timeout_s: float) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.timeout_s = timeout_s
        self.queue: list[_Item] = []
        self.busy = 0
        self.idle: list[BrokerConnection] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def add(self, item: _Item) -> None:
        self.queue.append(item)
        if self.busy < CONNECTIONS:
            self.busy += 1
            task = asyncio.get_running_loop().create_task(self._work())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # let this turn of the loop add its own
            while self.queue:
                await self._send(self._take())
        finally:
            self.busy -= 1

    def _take(self) -> list[_Item]:
        """What goes into one request: as much as fits, but no partition twice. Of two a broker takes one, and answers
        for both."""
        taken: dict[tuple[str, int], _Item] = {}
        left: list[_Item] = []
        size = 0
        for item in self.queue:
            where = (item.topic, item.partition)
            if where in taken or (taken and size + len(item.batch) > REQUEST_BYTES):
                left.append(item)
            else:
                taken[where] = item
                size += len(item.batch)
        self.queue = left
        return list(taken.values())

    async def _send(self, items: list[_Item]) -> None:
        conn: BrokerConnection | None = None
        try:
            conn = self.idle.pop() if self.idle else await self.cluster.open(self.node_id)
            topics: dict[str, list[pr.PartitionProduceData]] = {}
            for i in items:
                topics.setdefault(i.topic, []).append(pr.PartitionProduceData(index=i.partition, records=i.batch))
            data = [pr.TopicProduceData(name=t, partition_data=parts) for t, parts in topics.items()]
            req = pr.ProduceRequest(acks=-1, timeout_ms=int(self.timeout_s * 1000), topic_data=data)
            res = await conn.request(pr, "Produce", req, high=9, timeout_s=self.timeout_s)
            found = {
                (t.name, p.index): (p.error_code, p.base_offset) for t in res.responses for p in t.partition_responses
            }
            for i in items:
                if not i.future.done():
                    i.future.set_result(found[(i.topic, i.partition)])
            self.idle.append(conn)
        except (ConnectionLost, TimeoutError, WireError, KeyError) as exc:
            if conn is not None:
                conn.close()
            for i in items:
                if not i.future.done():
                    i.future.set_exception(ConnectionLost(f"broker {self.node_id}: {exc or 'timed out'}"))


class Appender:
    """`append` gives (error code, base offset); raises ConnectionLost when nobody can say whether it is in."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._leaders: dict[int, _Leader] = {}

    async def append(self, node_id: int, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader(self.cluster, node_id, self.timeout_s)
        future: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        leader.add(_Item(topic, partition, batch, future))
        return await future

    def close(self) -> None:
        for leader in self._leaders.values():
            for conn in leader.idle:
                conn.close()
