"""A write that is too large for one batch: several batches inside one Kafka transaction. Readers see all or nothing.

Ordinary writes are no transactions, which take 26-57 ms each (fenced_writer.py); a write of several megabytes takes
longer than that anyway. If its owner dies on the way, the next InitProducerId of that transactional id aborts the open
transaction, and the tail of every sidecar, which reads only committed records, never sees it.

The requests are those of Kafka before KIP-890's second part (AddPartitionsToTxn up to 3, EndTxn up to 4), which every
release takes: the producer epoch, which is the owner's fence, does not change with a transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.coordinator.statelog.batch_under_way import NO_LEADER, BatchUnderWay
from sidecar.coordinator.statelog.fence import Producer
from sidecar.coordinator.statelog.partition_leader import PartitionLeader
from sidecar.coordinator.statelog.write_errors import COORDINATOR_RETRIABLE, RETRIABLE, TOO_LARGE, WRITTEN, WriteLost
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.lanes import TRANSACTIONS, Lane
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.produce import Appender
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import end_txn as et

RETRY_S = 0.02
PIECE_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step. `code`: Kafka's error code; `text`: the result of the last try, for people."""

    code: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that writes to one partition. Each step is tried again until `until` (monotonic seconds): asking
    twice is safe."""

    cluster: Cluster
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int

    async def begin(self, until: float) -> Outcome:
        """Adds the partition to the transaction at its coordinator."""
        topics = [ap.AddPartitionsToTxnTopic(self.topic, [self.partition])]
        req = ap.AddPartitionsToTxnRequest([], self.transactional_id, self.producer_id, self.producer_epoch, topics)
        return await self._ask(ap, "AddPartitionsToTxn", req, 3, _added, until)

    async def commit(self, until: float) -> Outcome:
        """Commits: then all records are in the log for good; readers see them a little later."""
        req = et.EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, True)
        return await self._ask(et, "EndTxn", req, 4, lambda res: int(res.error_code), until)

    async def _ask(
        self, module: Any, name: str, req: Any, high: int, code_of: Callable[[Any], int], until: float
    ) -> Outcome:
        while True:
            try:
                node_id = await self.cluster.coordinator_node(self.transactional_id, 1)
                conn = await self.cluster.lane(node_id, Lane.TRANSACTIONS, self.partition % TRANSACTIONS)
                code = code_of(await conn.request(module, name, req, high=high))
                text = f"{name}: {name_of(code)}"
            except NO_ANSWER as exc:
                code, text = Code.COORDINATOR_NOT_AVAILABLE, f"{name}: {str(exc) or 'timed out'}"
            if code not in COORDINATOR_RETRIABLE | RETRIABLE or time.monotonic() > until:
                return Outcome(code, text)
            await asyncio.sleep(RETRY_S)


def _added(res: ap.AddPartitionsToTxnResponse) -> int:
    """Returns the error code of the only topic's only partition."""
    return res.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def pieces(records: Sequence[Encoded], most_bytes: int) -> Iterator[Sequence[Encoded]]:
    """Yields the records in their order, in pieces of at most `most_bytes`; a larger record is a piece of its own."""
    begin = size = 0
    for i, r in enumerate(records):
        more = r.size
        if i > begin and size + more > most_bytes:
            yield records[begin:i]
            begin, size = i, 0
        size += more
    if begin < len(records):
        yield records[begin:]


class LargeWrite:
    """One append that is too large for a batch. `batch`: the part of it that is under way."""

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        leader: PartitionLeader,
        producer: Producer,
        batch: BatchUnderWay,
    ) -> None:
        self._appender = appender
        self._leader = leader
        self._producer = producer
        self._batch = batch
        self._place = f"{leader.topic}-{leader.partition}"
        self._txn = Transaction(cluster, self._place, producer.id, producer.epoch, leader.topic, leader.partition)

    async def run(self, records: Sequence[Encoded]) -> tuple[Outcome, int]:
        """Writes all records or none, in several batches. Returns the outcome, and the offset of the last record."""
        batch = self._batch
        ended = await self._txn.begin(time.monotonic() + batch.timeout_s)
        left = list(pieces(records, batch.most_bytes))
        offset = -1
        while left and ended.code == Code.NONE:
            piece = left.pop(0)
            ended, base = await self._write_piece(piece)
            if ended.code in TOO_LARGE and len(piece) > 1:
                batch.too_large()
                left[:0] = pieces(piece, batch.most_bytes)
                ended = Outcome(Code.NONE)
            elif ended.code in WRITTEN:
                self._producer.count(len(piece))
                offset, ended = base + len(piece) - 1 if base >= 0 else -1, Outcome(Code.NONE)
        if ended.code == Code.NONE:
            ended = await self._commit(time.monotonic() + batch.timeout_s)
        return ended, offset

    async def _commit(self, until: float) -> Outcome:
        """Commits, after a check that the topic is still the same: a transaction names its topic, and must not commit
        in another one of that name."""
        while True:
            try:
                await self._leader.find(self._batch.last)
                return await self._txn.commit(until)
            except NO_ANSWER as exc:
                if time.monotonic() >= until:
                    return Outcome(Code.COORDINATOR_NOT_AVAILABLE, str(exc) or "timed out")
            except WriteLost as exc:
                return Outcome(Code.UNKNOWN_TOPIC_ID, str(exc))
            await asyncio.sleep(PIECE_RETRY_S)

    async def _write_piece(self, piece: Sequence[Encoded]) -> tuple[Outcome, int]:
        """Writes one batch. Returns the outcome, and the offset of the first record."""
        leader, batch, producer = self._leader, self._batch, self._producer
        until = time.monotonic() + batch.timeout_s
        wall_ms = int(time.time() * 1000)
        batch.data = await asyncio.to_thread(
            encode_batch, piece, wall_ms, producer.id, producer.epoch, producer.sequence, True
        )
        while True:
            code, text = int(Code.LEADER_NOT_AVAILABLE), NO_LEADER
            try:
                if leader.node_id < 0:
                    leader.node_id = await leader.find(batch.last)
                if leader.node_id >= 0:
                    code, base = await self._appender.append(
                        leader.node_id, leader.topic, leader.partition, batch.data, self._place
                    )
                    text = name_of(code)
                    if not batch.retriable(code):
                        return Outcome(code, text), base
            except NO_ANSWER as exc:
                text = str(exc) or "timed out"
            except WriteLost as exc:
                return Outcome(Code.UNKNOWN_TOPIC_ID, str(exc)), -1
            leader.node_id = -1
            if time.monotonic() >= until:
                return Outcome(code, f"{text} for {batch.timeout_s} s"), -1
            await asyncio.sleep(PIECE_RETRY_S)
