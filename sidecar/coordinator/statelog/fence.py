"""The fence of one partition: `InitProducerId` of its transactional id, which shuts out every earlier writer.
Facts this rests on: docs/reference/measurements.md, 'Writing state'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.coordinator.statelog.write_errors import COORDINATOR_RETRIABLE, WriteLost
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.internal_topics import TRANSACTIONS
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import FENCES, Lane
from sidecar.kafka.net import NO_ANSWER
from sidecar.wire.generated import init_producer_id as ip

INIT_THERE = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS}
"""Errors of the right broker that needs a moment."""
TIMEOUT_MS = 60_000
"""Timeout of a transaction of the state topic. Brokers refuse one above their transaction.max.timeout.ms."""
RETRY_S = 0.05
LATE_S = 0.5
"""Seconds after which the transaction coordinator is looked up again. A fence usually takes milliseconds."""
INIT_S = 2.0
"""Seconds for one attempt at a fence; the owner tries again, and logs the reason."""


@dataclass(slots=True)
class Producer:
    """The producer id and epoch under which batches are written, and the sequence of the next record."""

    id: int = -1
    epoch: int = -1
    sequence: int = 0

    @property
    def owner_epoch(self) -> int:
        return self.id << 16 | self.epoch

    def count(self, records: int) -> None:
        """Adds to the sequence; `records` below 0: takes back records that were not written."""
        self.sequence = (self.sequence + records) & 0x7FFFFFFF


class Fence:
    """The fence of one attempt at owning the partition. `over()`: whether the attempt has ended."""

    def __init__(self, cluster: Cluster, transactional_id: str, partition: int, over: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._partition = partition
        self._over = over

    async def take(self) -> Producer:
        """Takes the fence. Raises WriteLost with the reason if that does not succeed within INIT_S."""
        deadline = time.monotonic() + INIT_S
        node_id = -1
        while True:
            try:
                if node_id < 0:
                    node_id = await self._cluster.coordinator_node(self._transactional_id, 1)
                res = await self._fence(node_id)
                code, why = res.error_code, name_of(res.error_code)
            except NO_ANSWER as exc:
                code, why = Code.COORDINATOR_NOT_AVAILABLE, str(exc) or "timed out"
            if code == Code.NONE:
                return Producer(res.producer_id, res.producer_epoch)
            if code not in COORDINATOR_RETRIABLE or time.monotonic() > deadline:
                raise WriteLost(f"InitProducerId: {why}{await self._remedy(code)}")
            if code not in INIT_THERE:
                node_id = -1
            await asyncio.sleep(RETRY_S)

    async def _fence(self, node_id: int) -> ip.InitProducerIdResponse:
        """Returns this broker's answer. Gives up when another broker coordinates the transactional id, as it will if
        this one stands still. Raises ConnectionLost, TimeoutError and WireError."""
        asking = asyncio.ensure_future(self._ask(node_id))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=LATE_S)
                if not asking.done() and await self._has_moved(node_id) and not asking.done():
                    raise ConnectionLost(f"broker {node_id} is not the coordinator any more")
            return asking.result()
        finally:
            asking.cancel()
            del asking  # its exception holds this frame

    async def _has_moved(self, node_id: int) -> bool:
        try:
            return await self._cluster.coordinator_node(self._transactional_id, 1) != node_id
        except NO_ANSWER:
            return False  # no broker knows another coordinator

    async def _ask(self, node_id: int) -> ip.InitProducerIdResponse:
        conn = await self._cluster.lane(node_id, Lane.FENCES, self._partition % FENCES)
        if self._over():  # a later attempt may hold the fence by now, and this would shut it out
            raise WriteLost("stopped")
        req = ip.InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        res: ip.InitProducerIdResponse = await conn.request(ip, "InitProducerId", req, high=4)
        return res

    async def _remedy(self, code: int) -> str:
        """Returns what an operator can do if the brokers refuse the timeout, or the cluster cannot make a transaction
        coordinator; else ""."""
        if code == Code.INVALID_TRANSACTION_TIMEOUT:
            return f". Set the brokers' transaction.max.timeout.ms to no less than {TIMEOUT_MS}"
        try:
            if not await self._cluster.has_no(TRANSACTIONS):
                return ""
            view = await self._cluster.refresh([TRANSACTIONS])
        except NO_ANSWER:
            return ""
        return (
            f". There is no topic {TRANSACTIONS}: the brokers make it with transaction.state.log.replication.factor "
            f"replicas (3 by default) and cannot with {len(view.brokers)} broker(s). Set that, and "
            "transaction.state.log.min.isr, to no more than the number of brokers, and restart them"
        )
