"""Appends to many partitions, gathered into one Produce request for each leader.

A broker handles the requests of a connection one after the other, and an append with acks=all waits for the followers.
So the batches that gather for a leader while requests are under way go out together, over a few connections.

A topic whose id is pinned is written to by that id where the leader takes it (Produce from version 13, KIP-516, Kafka
4.1). Then nothing gets into another topic of the same name: the answer is UNKNOWN_TOPIC_ID. A transaction is begun by
names, and so its batches go by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.denials import TOPIC
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_body
from sidecar.wire.generated import produce as pr
from sidecar.wire.primitives import ZERO_UUID, WireError

CONNECTIONS = 3
"""Connections to each leader. With several of them a slow partition delays only the partitions of its own request."""
REQUEST_BYTES = 16 << 20
BY_ID = 13
"""First version of Produce that has topic ids, and no names."""
BY_NAME = 9
SILENT_S = 3.0
"""Time after which a leader that does not answer may be dead, and another one may lead soon: the batch is sent again,
which its sequence makes safe."""


Done = Callable[[int, int, ConnectionLost | None], None]
"""Called with a batch's error code and base offset, or with the reason why it is not known whether it was appended."""


class _Item(NamedTuple):
    topic: str
    partition: int
    batch: bytes
    done: Done
    transactional_id: str | None = None


class _Leader:
    """The queue and the connections of one leader. It works by callbacks, as a task for each append would cost the
    event loop more than the append does (docs/design/decisions.md, Commits in order)."""

    def __init__(self, cluster: Cluster, node_id: int, timeout_s: float, pinned: Mapping[str, bytes]) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.pinned = pinned
        self.timeout_s = timeout_s
        self.queue: list[_Item] = []
        self.busy = 0
        self.idle: list[BrokerConnection] = []
        self.closed = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._due = False

    def add(self, item: _Item) -> None:
        self.queue.append(item)
        if not self.busy and self.idle:
            self._flush()  # a turn of the loop may take long: the broker works meanwhile
        elif not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._flush)  # batches of one turn of the loop go together

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _flush(self) -> None:
        self._due = False
        while self.queue and self.busy < CONNECTIONS:
            self.busy += 1
            while self.idle and self.idle[-1].closed:
                self.idle.pop()
            if self.idle:
                self._send(self.idle.pop(), self._take())
            else:
                self._spawn(self._open(self._take()))

    def _take(self) -> list[_Item]:
        """Takes the batches of one request: as many as fit, but no partition twice. Of two batches for one partition a
        broker appends one, and answers for both. A request names one transaction, so a batch of one goes alone."""
        taken: dict[tuple[str, int], _Item] = {}
        left: list[_Item] = []
        size, transactional = 0, False
        for item in self.queue:
            where = (item.topic, item.partition)
            separate = transactional or item.transactional_id is not None or size + len(item.batch) > REQUEST_BYTES
            if where in taken or (taken and separate):
                left.append(item)
            else:
                taken[where], transactional = item, item.transactional_id is not None
                size += len(item.batch)
        self.queue = left
        return list(taken.values())

    async def _open(self, items: list[_Item]) -> None:
        try:
            conn = await self.cluster.open(self.node_id)
            if self.closed:
                conn.close()
                raise ConnectionLost("the coordinator has ended")
        except NO_ANSWER as exc:
            self._lost(None, items, exc)
        else:
            self._send(conn, items)

    def _send(self, conn: BrokerConnection, items: list[_Item]) -> None:
        topics: dict[str, list[pr.PartitionProduceData]] = {}
        for i in items:
            topics.setdefault(i.topic, []).append(pr.PartitionProduceData(index=i.partition, records=i.batch))
        ids = {t: self.pinned.get(t, ZERO_UUID) for t in topics}
        data = [pr.TopicProduceData(t, ids[t], parts) for t, parts in topics.items()]
        req = pr.ProduceRequest(items[0].transactional_id, -1, int(self.timeout_s * 1000), data)
        by_name = req.transactional_id is not None or ZERO_UUID in ids.values() or not conn.offers(Api.PRODUCE, BY_ID)
        high = BY_NAME if by_name else BY_ID
        try:
            version, flexible, response = conn.start(pr, "Produce", req, high)
        except (ConnectionLost, WireError) as exc:
            asyncio.get_running_loop().call_soon(self._lost, conn, items, exc)  # never from within `put`
            return
        timer = asyncio.get_running_loop().call_later(min(self.timeout_s, SILENT_S), _late, response)

        def answered(response: asyncio.Future[bytes]) -> None:
            timer.cancel()
            try:
                raw = response.result()
                res = pr.ProduceResponse.decode(version, raw, response_body(raw, flexible))
                results = {
                    (t.name if by_name else t.topic_id, p.index): (p.error_code, p.base_offset)
                    for t in res.responses
                    for p in t.partition_responses
                }
                outcomes = [results[(i.topic if by_name else ids[i.topic], i.partition)] for i in items]
            except (ConnectionLost, TimeoutError, WireError, KeyError) as exc:
                self._lost(conn, items, exc)
                return
            self.idle.append(conn)
            if self.closed:
                conn.close()
            self.busy -= 1
            for i, (code, offset) in zip(items, outcomes, strict=True):
                self.cluster.security.outcome("Produce", TOPIC, i.topic, code)
                i.done(code, offset, None)
            self._flush()

        response.add_done_callback(answered)

    def _lost(self, conn: BrokerConnection | None, items: list[_Item], why: Exception) -> None:
        if conn is not None:
            conn.close()
        self.busy -= 1
        for i in items:
            i.done(-1, -1, ConnectionLost(f"broker {self.node_id}: {str(why) or 'timed out'}"))
        self._flush()

    def close(self) -> None:
        """Closes the connections, those that are in use once they have been answered."""
        self.closed = True
        for conn in self.idle:
            conn.close()


def _ended(future: asyncio.Future[tuple[int, int]], code: int, offset: int, lost: ConnectionLost | None) -> None:
    if future.done():
        return
    if lost is not None:
        future.set_exception(lost)
    else:
        future.set_result((code, offset))


def _late(response: asyncio.Future[bytes]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())


class Appender:
    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.pinned: dict[str, bytes] = {}
        """Topic ids to which writes are pinned, by name."""
        self.topic_recreated: Callable[[], None] = lambda: None
        """Callback for the writer, when a pinned topic turns out to have another id now."""
        self._leaders: dict[int, _Leader] = {}
        self._apart: set[_Leader] = set()
        """Leaders of `put_apart`, kept until their only batch is answered; then their connections are closed."""

    def put(
        self, node_id: int, topic: str, partition: int, batch: bytes, done: Done, transactional_id: str | None = None
    ) -> None:
        """Queues a batch, which may be part of a transaction. `done` is called later, never from within this call."""
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = self._leader(node_id)
        leader.add(_Item(topic, partition, batch, done, transactional_id))

    def put_apart(self, node_id: int, topic: str, partition: int, batch: bytes, done: Done) -> None:
        """Sends a batch over a connection that only it uses: a request is answered when the replicas of all its
        partitions have it, so others would wait for this one, and this one for them."""
        leader = self._leader(node_id)
        self._apart.add(leader)

        def ended(code: int, offset: int, lost: ConnectionLost | None) -> None:
            self._apart.discard(leader)
            leader.close()
            done(code, offset, lost)

        leader.add(_Item(topic, partition, batch, ended))

    def _leader(self, node_id: int) -> _Leader:
        return _Leader(self.cluster, node_id, self.timeout_s, self.pinned)

    async def append(
        self, node_id: int, topic: str, partition: int, batch: bytes, transactional_id: str | None = None
    ) -> tuple[int, int]:
        """Appends a batch and returns (error code, base offset). Raises ConnectionLost if it is not known whether the
        batch was appended."""
        future: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self.put(node_id, topic, partition, batch, partial(_ended, future), transactional_id)
        try:
            return await future
        finally:
            del future  # its exception holds this frame

    def close(self) -> None:
        for leader in (*self._leaders.values(), *self._apart):
            leader.close()
