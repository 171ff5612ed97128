"""The read index, as in Raft: whether the tail has read all that was written before this moment.

A sidecar that stood still, or whose connections are cut, may have an old state in memory. Where a group's coordinator
depends on it, the partition's leader is asked for the end of its log, and the tail must have read up to there. Without
a leader the replicas know it as well: acknowledged records are on at least `min.insync.replicas` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.topic_watch import MIN_ISR, read_configs
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.leaders import UNKNOWN, Leaders
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Tasks
from sidecar.wire.generated import list_offsets as lo

VERSION = 7
"""The last version of ListOffsets without tiered storage."""
LATEST = -1
ANY_REPLICA, LEADER_ONLY = -2, -1
"""Replica ids for ListOffsets: with the first one any replica answers, with the end of its log; with the second one
only the leader, with its high watermark."""
ANSWER_S, PAUSE_S = 1.0, 0.05


class ReadIndex:
    """The read index of the state topic `topic`. `state`: the tail's copy; `within_s`: longest wait."""

    def __init__(self, cluster: Cluster, topic: str, state: StateLog, within_s: float, tasks: Tasks) -> None:
        self._cluster = cluster
        self._topic = topic
        self._state = state
        self._within_s = within_s
        self._tasks = tasks
        self.leaders = Leaders(topic)
        """The newest known leaders of the state topic. Whoever hears of them in another way has them taken in, too."""
        self._doubted = True
        """Whether brokers are asked for the leaders before the next question."""
        self._asking: set[int] = set()
        self._waiting: dict[int, list[asyncio.Future[int]]] = {}
        """Partition -> questions since its leader was last asked."""

    async def is_read(self, partitions: Collection[int]) -> bool:
        """Returns whether the tail has read, within the time, all records that these partitions had at the call."""
        try:
            async with asyncio.timeout(self._within_s):
                ends = await asyncio.gather(*(self._end(p) for p in partitions))
                for p, end in zip(partitions, ends, strict=True):
                    await self._state.wait_applied(p, end - 1)
        except TimeoutError:
            return False
        return True

    async def all_read(self) -> bool:
        """Returns `is_read` of all partitions."""
        return await self.is_read(range(len(self._state.partitions)))

    async def _end(self, partition: int) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append(future)
        if partition not in self._asking:
            self._asking.add(partition)
            self._tasks.spawn(self._ask(partition), f"end-{partition}")
        return await future

    async def _ask(self, partition: int) -> None:
        """Asks once for all open questions. A question that comes while a request is under way waits for the next one,
        because the broker may have answered this one before."""
        try:
            while waiting := [f for f in self._waiting.pop(partition, ()) if not f.done()]:
                try:
                    end = await self._end_of_log(partition)
                except NO_ANSWER:
                    self._waiting[partition] = waiting + self._waiting.get(partition, [])
                    await asyncio.sleep(PAUSE_S)
                    continue
                for future in waiting:
                    if not future.done():
                        future.set_result(end)
        finally:
            self._asking.discard(partition)

    async def _end_of_log(self, partition: int) -> int:
        """Returns an offset before which all acknowledged records are. Raises ConnectionLost, TimeoutError,
        WireError."""
        try:
            if self._doubted or partition >= len(self.leaders.epochs):
                self.leaders.take(await self._cluster.refresh([self._topic]))
                self._doubted = False
            leader, epoch = self.leaders.of(partition)
            if leader == UNKNOWN:
                raise ConnectionLost(f"{self._topic}-{partition} has no leader")
            return await self._asked(leader, partition, LEADER_ONLY, epoch)
        except NO_ANSWER:
            self._doubted = True
            return await self._of_replicas(partition)

    async def _of_replicas(self, partition: int) -> int:
        """Returns the same as `_found`, without the leader. Raises ConnectionLost, TimeoutError, WireError."""
        nodes, configs = await asyncio.gather(
            self._cluster.replicas(self._topic), read_configs(self._cluster, self._topic)
        )
        replicas = nodes[partition] if partition < len(nodes) else ()
        answers = await asyncio.gather(*(self._end_at(node, partition) for node in replicas))
        ends = [end for end in answers if end is not None]
        before = acknowledged_before(ends, len(replicas), int(configs.get(MIN_ISR, "1")))
        if before is None:
            raise ConnectionLost(f"{self._topic}-{partition}: too few of its replicas answer")
        return before

    async def _end_at(self, node: int, partition: int) -> int | None:
        try:
            return await self._asked(node, partition, ANY_REPLICA)
        except NO_ANSWER:
            return None

    async def _asked(self, node: int, partition: int, replica_id: int, epoch: int = UNKNOWN) -> int:
        """Returns the end of the partition's log at this broker. With a leader epoch, a leader that was replaced and
        has not heard of it refuses to answer (KIP-320). Raises ConnectionLost, TimeoutError, WireError."""
        wanted = [lo.ListOffsetsPartition(partition, epoch, LATEST)]
        req = lo.ListOffsetsRequest(replica_id=replica_id, topics=[lo.ListOffsetsTopic(self._topic, wanted)])
        async with asyncio.timeout(ANSWER_S):
            conn = await self._cluster.lane(node, Lane.LOG_ENDS)
        res = await conn.request(lo, "ListOffsets", req, high=VERSION, timeout_s=ANSWER_S)
        answer = res.topics[0].partitions[0]
        if answer.error_code != Code.NONE:
            raise ConnectionLost(f"{self._topic}-{partition}: {name_of(answer.error_code)}")
        return int(answer.offset)


def acknowledged_before(ends: Collection[int], replicas: int, min_isr: int) -> int | None:
    """Returns the offset before which every acknowledged record is, by the log ends of the replicas that have answered.
    Each such record is on `min_isr` replicas. None: too few have answered."""
    others = min(min_isr, replicas) - (replicas - len(ends))
    return sorted(ends, reverse=True)[others - 1] if others > 0 else None
