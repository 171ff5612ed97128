"""The producer of an exactly-once client: its offsets go with a transaction (KIP-98, KIP-447), in the old way, where it
tells the coordinator of transactions about the group's offsets first, or in that of KIP-890. Only offsets are in it.

What it sends, and to whom, is what Kafka's clients send: InitProducerId, AddOffsetsToTxn and EndTxn to the coordinator
of transactions, which is a broker, and TxnOffsetCommit to the coordinator of the group, with the member's id and epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import txn_offset_commit as tc

if TYPE_CHECKING:
    from tests.whole.client import Client, Place


TIMEOUT_MS = 5_000
"""The timeout of a transaction: then its coordinator aborts it."""
IDLE_MS = 20_000
"""Behind so long without a transaction an application has a new producer: in some runs the brokers forget after 30 s
an id that nobody has used, and would refuse it (INVALID_PRODUCER_ID_MAPPING)."""
REQUEST_S, PAUSE_S = 3.0, 0.1
ABORTS = 0.2
"""The share of transactions that are aborted for no reason of ours."""
AGAIN = (
    Code.CONCURRENT_TRANSACTIONS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.NOT_COORDINATOR,
    Code.REQUEST_TIMED_OUT,
)
TRANSACTION = 1
"""The kind of key in FindCoordinator."""


class End(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No coordinator has reported the end; the next fetch of the offsets, stable ones only, finds it out."""


class Producer:
    def __init__(self, client: Client, txn_id: str, newer: bool) -> None:
        """`newer`: as of KIP-890."""
        self._client, self.txn_id, self._newer = client, txn_id, newer
        self._id, self._epoch = -1, -1
        self._conn: BrokerConnection | None = None
        self._began_ms = 0.0
        self.now = (-1, -1)
        """Producer id and epoch of the present transaction, or of the last one."""

    async def commit(self, offsets: Mapping[Place, int]) -> End:
        """One transaction. Whoever cancels this leaves it to its timeout, or to the next InitProducerId."""
        member, losses = (self._client.epoch, self._client.member_id), self._client.losses
        ready = self._id >= 0 and self._client.proc.universe.now_ms - self._began_ms < IDLE_MS
        who, self._id = (self._id, self._epoch), -1
        if not ready:
            who = await self._init()
        self.now = who
        self._began_ms = self._client.proc.universe.now_ms
        if not self._newer:
            req = ao.AddOffsetsToTxnRequest(self.txn_id, *who, self._client.habits.group_id)
            if (await self._until(ao, "AddOffsetsToTxn", req, 3)).error_code != Code.NONE:
                return End.UNKNOWN
        if losses != self._client.losses:
            # An application that waits for its producer does not poll, so it cannot be assigned anything meanwhile.
            return End.UNKNOWN
        taken = await self._send(who, member, offsets)
        commit = taken and self._client.proc.universe.rng.random() >= ABORTS
        if not commit:
            self._client.judge.aborts(self._client, offsets)
        res = await self._until(et, "EndTxn", et.EndTxnRequest(self.txn_id, *who, commit), 5 if self._newer else 4)
        if res.error_code != Code.NONE or not self._decided():
            return End.UNKNOWN
        self._id, self._epoch = (res.producer_id, res.producer_epoch) if self._newer else who
        return End.COMMITTED if commit else End.ABORTED

    def _decided(self) -> bool:
        """Whether the broker that has just answered has the office. One that was cut off and lost it says of the
        transaction before that it is committed, as if it were asked about that one again."""
        return self._conn is not None and self._client.judge.decides(self._conn.peer()[0], self.txn_id)

    async def _init(self) -> tuple[int, int]:
        while True:
            res = await self._until(ip, "InitProducerId", ip.InitProducerIdRequest(self.txn_id, TIMEOUT_MS), 4)
            if res.error_code == Code.NONE:
                return res.producer_id, res.producer_epoch
            await self._client.pause(PAUSE_S)

    async def _send(self, who: tuple[int, int], member: tuple[int, str], offsets: Mapping[Place, int]) -> bool:
        """To the coordinator of the group, as the member that it was when it began. Whether all of them were taken."""
        c, h = self._client, self._client.habits
        conn = c.conn
        if conn is None or conn.closed:
            return False
        by_topic: dict[str, list[tc.TxnOffsetCommitRequestPartition]] = {}
        for (topic, p), offset in offsets.items():
            by_topic.setdefault(topic, []).append(tc.TxnOffsetCommitRequestPartition(p, offset))
        topics = [tc.TxnOffsetCommitRequestTopic(t, partitions=ps) for t, ps in by_topic.items()]
        req = tc.TxnOffsetCommitRequest(
            self.txn_id, h.group_id, *who, *member, h.instance_id, topics
        )  # fmt: skip
        res = await c.store(conn, tc, "TxnOffsetCommit", req, 5 if self._newer else 4, offsets)
        codes = (
            {p.error_code for t in res.topics for p in t.partitions} if res is not None else {Code.REQUEST_TIMED_OUT}
        )
        return codes == {Code.NONE}

    async def _until(self, module: Any, what: str, req: Any, high: int) -> Any:
        """The answer of the coordinator of transactions, asked until it has one."""
        while True:
            try:
                if self._conn is None or self._conn.closed:
                    self._conn = await self._find()
                if self._conn is not None:
                    res = await self._conn.request(module, what, req, high=high, timeout_s=REQUEST_S)
                    if res.error_code not in AGAIN:
                        return res
                    if res.error_code != Code.CONCURRENT_TRANSACTIONS:
                        self._forget()
            except NO_ANSWER:
                self._forget()
            await self._client.pause(PAUSE_S)

    def _forget(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    async def _find(self) -> BrokerConnection | None:
        c = self._client
        host, port = c.proc.universe.rng.choice(list(c.brokers))
        first = await BrokerConnection.open(host, port, c.name, REQUEST_S)
        try:
            req = fc.FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.txn_id])
            res = await first.request(fc, "FindCoordinator", req, high=4, timeout_s=REQUEST_S)
        finally:
            first.close()
        found = res.coordinators[0]
        if found.error_code != Code.NONE:
            return None
        return await BrokerConnection.open(found.host, found.port, c.name, REQUEST_S)


__all__ = ["TIMEOUT_MS", "End", "Producer"]
