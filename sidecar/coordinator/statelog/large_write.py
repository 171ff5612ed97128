"""A write that is greater than one batch: several batches inside one Kafka transaction. Readers see all or nothing.

Ordinary writes are no transactions, which take 26-57 ms each (fenced_writer.py); a write of several megabytes takes
longer than that anyway. If its owner dies on the way, the next InitProducerId of that transactional id aborts what is
open, and the tail of every sidecar, which reads what is committed only, never sees it.

The requests are those of Kafka before KIP-890's second part (AddPartitionsToTxn up to 3, EndTxn up to 4), which every
release takes: the producer epoch, which is the owner's fence, does not change with a transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import TRANSACTIONS, Lane
from sidecar.state.codec import Encoded
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import end_txn as et
from sidecar.wire.primitives import WireError

RETRIABLE = {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
    Code.REQUEST_TIMED_OUT,
}
RETRY_S = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """`code` is an error code of Kafka; `text` says what the last try came to."""

    code: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One partition is written to. Each step is tried again until `until` (monotonic seconds): asking twice is safe."""

    cluster: Cluster
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int

    async def begin(self, until: float) -> Outcome:
        """The coordinator knows from now on that the partition is part of it."""
        topics = [ap.AddPartitionsToTxnTopic(self.topic, [self.partition])]
        req = ap.AddPartitionsToTxnRequest([], self.transactional_id, self.producer_id, self.producer_epoch, topics)
        return await self._ask(ap, "AddPartitionsToTxn", req, 3, _added, until)

    async def commit(self, until: float) -> Outcome:
        """All of it is in the log for good; readers see it a little later."""
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
            except (ConnectionLost, TimeoutError, WireError) as exc:
                code, text = Code.COORDINATOR_NOT_AVAILABLE, f"{name}: {str(exc) or 'timed out'}"
            if code not in RETRIABLE or time.monotonic() > until:
                return Outcome(code, text)
            await asyncio.sleep(RETRY_S)


def _added(res: ap.AddPartitionsToTxnResponse) -> int:
    """There is one topic with one partition."""
    return res.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def pieces(records: Sequence[Encoded], most_bytes: int) -> Iterator[Sequence[Encoded]]:
    """These records in their order, in pieces that come to no more than `most_bytes` each; a record that is greater
    than that is a piece of its own."""
    begin = size = 0
    for i, r in enumerate(records):
        more = r.size
        if i > begin and size + more > most_bytes:
            yield records[begin:i]
            begin, size = i, 0
        size += more
    if begin < len(records):
        yield records[begin:]
