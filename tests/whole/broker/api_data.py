"""Produce, InitProducerId, and the requests of transactions."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import produce as pr
from tests.whole.broker import rights as rt
from tests.whole.broker.batches import Batch, decode, readable
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.groups import OFFSETS
from tests.whole.broker.replica import Replica
from tests.whole.broker.txn import Place

ZERO = b"\0" * 16
TELLS_ABORTABLE = 12
"""The version of Produce from which on a transaction takes partitions in with their first batch."""
NOT_VERIFIED = {
    Err.CONCURRENT_TRANSACTIONS: Err.NOT_ENOUGH_REPLICAS,
    Err.COORDINATOR_LOAD_IN_PROGRESS: Err.NOT_ENOUGH_REPLICAS,
    Err.COORDINATOR_NOT_AVAILABLE: Err.NOT_ENOUGH_REPLICAS,
    Err.NOT_COORDINATOR: Err.NOT_ENOUGH_REPLICAS,
}
"""Codes that make a producer try again if it knows no such codes of Produce (AddPartitionsToTxnManager)."""
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


# ---- Produce ------------------------------------------------------------------------------------------------------
def produce(ctx: Context, req: pr.ProduceRequest, reply: Reply) -> None:
    """Each partition by itself; the answer goes when all are done."""
    image = ctx.node.image
    response = pr.ProduceResponse()
    left = [1]
    broken = any(not readable(p.records or b"") for t in req.topic_data for p in t.partition_data)

    def done() -> None:
        left[0] -= 1
        if not left[0]:
            reply(response if req.acks else None)

    for t in req.topic_data:
        named = image.by_id(t.topic_id) if ctx.version >= 13 else image.topics.get(t.name)
        name = named.name if named is not None else t.name
        told = pr.TopicProduceResponse(t.name, t.topic_id)
        response.responses.append(told)
        for p in t.partition_data:
            part = pr.PartitionProduceResponse(p.index, Err.NONE, -1)
            told.partition_responses.append(part)
            left[0] += 1
            if broken:  # found where transactional records are looked for, so it concerns the whole request
                part.error_code = Err.CORRUPT_MESSAGE
                done()
            elif ctx.version >= 13 and named is None:
                part.error_code = Err.UNKNOWN_TOPIC_ID
                done()
            else:
                _Append(ctx, req, name, part, done).start(p.records or b"")
    done()


class _Append:
    """One partition of a Produce request."""

    def __init__(
        self,
        ctx: Context,
        req: pr.ProduceRequest,
        topic: str,
        part: pr.PartitionProduceResponse,
        done: Callable[[], None],
    ) -> None:
        self.ctx, self.req, self.topic, self.part, self.done = ctx, req, topic, part, done

    def start(self, raw: bytes) -> None:
        try:
            self._append(raw)
        except Refused as exc:
            self.part.error_code = exc.code
            self.part.base_offset = -1
            if exc.text is not None:
                self.part.error_message = exc.text
            self.done()

    def _append(self, raw: bytes) -> None:
        node, topic, index = self.ctx.node, self.topic, self.part.index
        if self.req.acks not in (-1, 0, 1):
            raise Refused(Err.INVALID_REQUIRED_ACKS)
        if not self.ctx.may(rt.WRITE, rt.TOPIC, topic):
            raise Refused(Err.TOPIC_AUTHORIZATION_FAILED)
        if node.image.partition(topic, index) is None:
            raise Refused(Err.UNKNOWN_TOPIC_OR_PARTITION)
        if topic in INTERNAL:
            raise Refused(Err.INVALID_TOPIC_EXCEPTION)
        replica = node.replica(topic, index)
        if replica is None:
            raise Refused(Err.NOT_LEADER_OR_FOLLOWER)
        if self.req.acks == -1 and replica.too_few():
            raise Refused(Err.NOT_ENOUGH_REPLICAS)
        batch = decode(raw)
        if batch.size > int(node.settings.topic(topic, "max.message.bytes")):
            raise Refused(Err.MESSAGE_TOO_LARGE)
        compacted = "compact" in node.settings.topic(topic, "cleanup.policy")
        if compacted and any(r.key is None for r in batch.records):
            raise Refused(Err.INVALID_RECORD)
        if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.sequence < 0):
            raise Refused(Err.INVALID_RECORD)
        if batch.transactional:
            self._in_transaction(replica, batch)
        else:
            self._take(replica, batch)

    def _in_transaction(self, replica: Replica, batch: Batch) -> None:
        """The coordinator of the transaction must know of this partition (KIP-890), which the first batch asks for."""
        txn_id = self.req.transactional_id
        if not txn_id or not self.ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, txn_id):
            raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        known = replica.log.producers.get(batch.producer_id)
        if known is not None and known.open_from >= 0 and known.epoch == batch.producer_epoch:
            self._take(replica, batch)
            return

        def verified(code: Err) -> None:
            try:
                if code == Err.TRANSACTION_ABORTABLE and self.ctx.version < TELLS_ABORTABLE:
                    code = Err.INVALID_TXN_STATE
                if code == Err.PRODUCER_FENCED:
                    code = Err.INVALID_PRODUCER_EPOCH
                if code != Err.NONE:
                    raise Refused(NOT_VERIFIED.get(code, code))
                if self.ctx.node.replica(self.topic, self.part.index) is not replica or not replica.leads:
                    raise Refused(Err.NOT_LEADER_OR_FOLLOWER)
                self._take(replica, batch)
            except Refused as exc:
                self.part.error_code, self.part.base_offset = exc.code, -1
                self.done()

        who = (batch.producer_id, batch.producer_epoch)
        place = (self.topic, self.part.index)
        self.ctx.node.txns.join_transaction(txn_id, who, place, self.ctx.version >= TELLS_ABORTABLE, verified)

    def _take(self, replica: Replica, batch: Batch) -> None:
        node, topic = self.ctx.node, self.topic
        again = replica.log.check(batch, node.host.wall_ms(), node.settings.number("producer.id.expiration.ms"))
        self.part.log_start_offset = replica.log.start
        least = int(node.settings.topic(topic, "min.insync.replicas"))
        if again is not None:
            self.part.base_offset = again
            if self.req.acks == -1:
                replica.wait(again + batch.count, self.req.timeout_ms, self._acked)
            else:
                self.done()
            return
        then = self._acked if self.req.acks == -1 else _nothing
        placed = replica.append(batch, self.req.timeout_ms, min(least, len(replica.state.replicas)), then)
        self.part.base_offset = placed.base
        if self.req.acks != -1:
            self.done()

    def _acked(self, code: Err) -> None:
        self.part.error_code = code
        self.done()


def _nothing(code: Err) -> None:
    """Does nothing: no request waits for the followers."""


# ---- InitProducerId -----------------------------------------------------------------------------------------------
def init_producer_id(ctx: Context, req: ip.InitProducerIdRequest, reply: Reply) -> None:
    def told(code: Err, producer_id: int, epoch: int) -> None:
        if code == Err.PRODUCER_FENCED and ctx.version < 4:
            code = Err.INVALID_PRODUCER_EPOCH
        reply(ip.InitProducerIdResponse(0, code, producer_id, epoch))

    try:
        _init(ctx, req, told)
    except Refused as exc:
        told(exc.code, -1, -1)


def _init(ctx: Context, req: ip.InitProducerIdRequest, told: Callable[[Err, int, int], None]) -> None:
    node, txn_id = ctx.node, req.transactional_id
    if txn_id is None:
        if not ctx.may(rt.IDEMPOTENT_WRITE, rt.CLUSTER, rt.CLUSTER_NAME):
            raise Refused(Err.CLUSTER_AUTHORIZATION_FAILED)
    elif not ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, txn_id):
        raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (req.producer_id == -1) != (req.producer_epoch == -1):
        raise Refused(Err.INVALID_REQUEST)
    if txn_id is None:
        told(Err.NONE, node.new_producer_id(), 0)
        return
    if not txn_id:
        raise Refused(Err.INVALID_REQUEST)
    if not 0 < req.transaction_timeout_ms <= node.settings.number("transaction.max.timeout.ms"):
        raise Refused(Err.INVALID_TRANSACTION_TIMEOUT)
    expected = (req.producer_id, req.producer_epoch) if req.producer_id >= 0 else None
    node.txns.shard(txn_id).init(txn_id, req.transaction_timeout_ms, expected, told)


# ---- transactions -------------------------------------------------------------------------------------------------
def _older(ctx: Context, code: Err) -> Err:
    """Versions before 2 do not know PRODUCER_FENCED."""
    return Err.INVALID_PRODUCER_EPOCH if code == Err.PRODUCER_FENCED and ctx.version < 2 else code


def add_offsets_to_txn(ctx: Context, req: ao.AddOffsetsToTxnRequest, reply: Reply) -> None:
    def told(code: Err) -> None:
        reply(ao.AddOffsetsToTxnResponse(0, _older(ctx, code)))

    try:
        if not ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, req.transactional_id):
            raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.transactional_id:
            raise Refused(Err.INVALID_REQUEST)
        place: Place = (OFFSETS, ctx.node.groups.partition(req.group_id))
        shard = ctx.node.txns.shard(req.transactional_id)
        shard.add(req.transactional_id, req.producer_id, req.producer_epoch, frozenset((place,)), False, told)
    except Refused as exc:
        told(exc.code)


def add_partitions_to_txn(ctx: Context, req: ap.AddPartitionsToTxnRequest, reply: Reply) -> None:
    """Versions 0 to 3, as clients send them; later ones are between brokers."""
    places = [(t.name, i) for t in req.v3_and_below_topics for i in t.partitions]

    def told(codes: dict[Place, Err]) -> None:
        topics = [
            ap.AddPartitionsToTxnTopicResult(
                t.name, [ap.AddPartitionsToTxnPartitionResult(i, _older(ctx, codes[t.name, i])) for i in t.partitions]
            )
            for t in req.v3_and_below_topics
        ]
        reply(ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

    wrong: dict[Place, Err] = {}
    for place in places:
        if not ctx.may(rt.WRITE, rt.TOPIC, place[0]):
            wrong[place] = Err.TOPIC_AUTHORIZATION_FAILED
        elif ctx.node.image.partition(*place) is None:
            wrong[place] = Err.UNKNOWN_TOPIC_OR_PARTITION
    if wrong:
        told({place: wrong.get(place, Err.OPERATION_NOT_ATTEMPTED) for place in places})
        return
    txn_id = req.v3_and_below_transactional_id
    try:
        if not ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, txn_id):
            raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not txn_id:
            raise Refused(Err.INVALID_REQUEST)
        who = req.v3_and_below_producer_id, req.v3_and_below_producer_epoch
        shard = ctx.node.txns.shard(txn_id)
        shard.add(txn_id, *who, frozenset(places), False, lambda code: told(dict.fromkeys(places, code)))
    except Refused as exc:
        told(dict.fromkeys(places, exc.code))


def end_txn(ctx: Context, req: et.EndTxnRequest, reply: Reply) -> None:
    def told(code: Err, producer_id: int, epoch: int) -> None:
        reply(et.EndTxnResponse(0, _older(ctx, code), producer_id, epoch))

    try:
        if not ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, req.transactional_id):
            raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not req.transactional_id:
            raise Refused(Err.INVALID_REQUEST)
        shard = ctx.node.txns.shard(req.transactional_id)
        bumps = ctx.version >= 5
        shard.end(req.transactional_id, req.producer_id, req.producer_epoch, req.committed, bumps, told)
    except Refused as exc:
        told(exc.code, -1, -1)
