"""The APIs of transactions: they pass, but the transactional ids of the sidecars are nobody else's. A producer that
begins in the name of a partition of the state topic shuts the partition's owner out.

InitProducerId (api 22, KIP-98): v1 adds nothing to the request, v2 is flexible, v3 carries the present id and epoch
(KIP-360), v4 may answer PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890), v6 is for two-phase commits
(KIP-939).
AddPartitionsToTxn (api 24, KIP-98): v3 is flexible; v4 takes several transactions and is for brokers, which verify them
for each other (KIP-890); v5 adds TRANSACTION_ABORTABLE.
AddOffsetsToTxn (api 25, KIP-98): v3 is flexible, v4 adds TRANSACTION_ABORTABLE.
EndTxn (api 26, KIP-98): v3 is flexible, v4 adds TRANSACTION_ABORTABLE, v5 tells the next epoch (KIP-890).
DescribeTransactions (api 65), ListTransactions (api 66): v0 is KIP-664; v1 of the latter filters by duration (KIP-994),
v2 by pattern (KIP-1152).

A request that names none of them is not even decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sidecar.api.call import FORWARD, Call, Handler, Want, upstream
from sidecar.core.errors import Code
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import describe_transactions as dt
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import list_transactions as lt

REFUSED = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OF_BROKERS_SINCE = 4
"""Version of AddPartitionsToTxn, for which a broker wants CLUSTER_ACTION."""
NO_PRODUCER = -1
NOTHING: tuple[Want, ...] = ()
"""What a handler asks that asks nobody."""


def _names_none(call: Call) -> bool:
    """Whether a look at the bytes shows that the request has nothing of the sidecars'."""
    own = call.scope.own
    named = own.topic and own.topic.encode() in call.frame, own.group and own.group.encode() in call.frame
    return not any(named)


def init_producer_id(call: Call) -> Handler:
    yield from NOTHING
    if _names_none(call):
        return FORWARD
    req = ip.InitProducerIdRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.own.is_transactional(req.transactional_id):
        return FORWARD
    res = ip.InitProducerIdResponse(error_code=REFUSED, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
    return res.encode(call.version)


def add_partitions_to_txn(call: Call) -> Handler:
    yield from NOTHING
    if _names_none(call):
        return FORWARD
    own = call.scope.own
    req = ap.AddPartitionsToTxnRequest.decode(call.version, call.frame, call.pos)
    if call.version >= OF_BROKERS_SINCE:
        if own.brokers_come or not any(own.is_transactional(t.transactional_id) for t in req.transactions):
            return FORWARD
        return ap.AddPartitionsToTxnResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED).encode(call.version)
    if not own.is_transactional(req.v3_and_below_transactional_id):
        return FORWARD
    topics = [ap.AddPartitionsToTxnTopicResult(t.name, _each(t.partitions)) for t in req.v3_and_below_topics]
    return ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics).encode(call.version)


def _each(partitions: Iterable[int]) -> list[ap.AddPartitionsToTxnPartitionResult]:
    return [ap.AddPartitionsToTxnPartitionResult(p, REFUSED) for p in partitions]


def add_offsets_to_txn(call: Call) -> Handler:
    yield from NOTHING
    if _names_none(call):
        return FORWARD
    req = ao.AddOffsetsToTxnRequest.decode(call.version, call.frame, call.pos)
    if call.scope.own.is_transactional(req.transactional_id):
        return ao.AddOffsetsToTxnResponse(error_code=REFUSED).encode(call.version)
    if call.scope.own.is_group(req.group_id):
        return ao.AddOffsetsToTxnResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED).encode(call.version)
    return FORWARD


def end_txn(call: Call) -> Handler:
    yield from NOTHING
    if _names_none(call):
        return FORWARD
    req = et.EndTxnRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.own.is_transactional(req.transactional_id):
        return FORWARD
    res = et.EndTxnResponse(error_code=REFUSED, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
    return res.encode(call.version)


def describe_transactions(call: Call) -> Handler:
    if _names_none(call):
        return FORWARD
    req = dt.DescribeTransactionsRequest.decode(call.version, call.frame, call.pos)
    own = {t for t in req.transactional_ids if call.scope.own.is_transactional(t)}
    if not own:
        return FORWARD
    res = dt.DescribeTransactionsResponse()
    if others := [t for t in req.transactional_ids if t not in own]:
        body = yield from upstream(call, replace(req, transactional_ids=others).encode(call.version))
        res = dt.DescribeTransactionsResponse.decode(call.version, body)
    res.transaction_states += [dt.TransactionState(error_code=REFUSED, transactional_id=t) for t in sorted(own)]
    return res.encode(call.version)


def list_transactions(call: Call) -> Handler:
    """A broker leaves out what the client may not DESCRIBE."""
    own = call.scope.own
    if not own.topic:
        return FORWARD
    body = yield from upstream(call)
    if own.topic.encode() not in body:
        return body
    res = lt.ListTransactionsResponse.decode(call.version, body)
    res.transaction_states = [t for t in res.transaction_states if not own.is_transactional(t.transactional_id)]
    return res.encode(call.version)
