"""The APIs of transactions: they pass, unless they name a transactional id of the sidecars. A client's producer with
the transactional id of a partition of the state topic would fence the partition's owner. TxnOffsetCommit is in
offset_commit.py.

InitProducerId (api 22, KIP-98): v1 adds nothing to the request, v2 is flexible, v3 carries the present id and epoch
(KIP-360), v4 may answer PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890), v6 is for two-phase commits
(KIP-939).
AddPartitionsToTxn (api 24, KIP-98): v3 is flexible; v4 takes several transactions and is for brokers, which verify them
for each other (KIP-890); v5 adds TRANSACTION_ABORTABLE.
AddOffsetsToTxn (api 25, KIP-98): v3 is flexible, v4 adds TRANSACTION_ABORTABLE.
EndTxn (api 26, KIP-98): v3 is flexible, v4 adds TRANSACTION_ABORTABLE, v5 has the next epoch (KIP-890).
DescribeTransactions (api 65), ListTransactions (api 66): v0 is KIP-664; v1 of the latter filters by duration (KIP-994),
v2 by pattern (KIP-1152).

A request that names none of these ids is not even decoded.
"""

from __future__ import annotations

from msgspec.structs import replace

from sidecar.api import slices
from sidecar.api.call import FORWARD, Call, Handler, Want, upstream
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import describe_transactions as dt
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import list_transactions as lt

REFUSED = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OF_BROKERS_SINCE = 4
"""First version of AddPartitionsToTxn for brokers, which need CLUSTER_ACTION for it."""
NO_PRODUCER = -1
NOTHING: tuple[Want, ...] = ()
"""Empty steps of a handler that asks nobody."""


def _names_none(call: Call) -> bool:
    """Returns whether the bytes show that the request names nothing of the sidecars'."""
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
    req = yield from slices.request(call, ap.AddPartitionsToTxnRequest)
    if call.version >= OF_BROKERS_SINCE:
        if own.brokers_come or not any(own.is_transactional(t.transactional_id) for t in req.transactions):
            return FORWARD
        return ap.AddPartitionsToTxnResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED).encode(call.version)
    if not own.is_transactional(req.v3_and_below_transactional_id):
        return FORWARD
    topics = yield from slices.made(req.v3_and_below_topics, _refused)
    res = ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    return (yield from slices.encoded(res, call.version))


def _refused(t: ap.AddPartitionsToTxnTopic) -> ap.AddPartitionsToTxnTopicResult:
    partitions = [ap.AddPartitionsToTxnPartitionResult(p, REFUSED) for p in t.partitions]
    return ap.AddPartitionsToTxnTopicResult(t.name, partitions)


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
    req = yield from slices.request(call, dt.DescribeTransactionsRequest)
    own = set((yield from slices.chosen(req.transactional_ids, call.scope.own.is_transactional)))
    if not own:
        return FORWARD
    res = dt.DescribeTransactionsResponse()
    if others := (yield from slices.chosen(req.transactional_ids, lambda t: t not in own)):
        sent = yield from slices.encoded(replace(req, transactional_ids=others), call.version)
        body = yield from upstream(call, sent)
        res = yield from slices.decoded(dt.DescribeTransactionsResponse, call.version, body)
    res.transaction_states += [dt.TransactionState(error_code=REFUSED, transactional_id=t) for t in sorted(own)]
    return (yield from slices.encoded(res, call.version))


def list_transactions(call: Call) -> Handler:
    """Leaves the sidecars' transactions out of the list, as a broker does with those that the client may not
    DESCRIBE."""
    own = call.scope.own
    if not own.topic:
        return FORWARD
    body = yield from upstream(call)
    if own.topic.encode() not in body:
        return body
    res = yield from slices.decoded(lt.ListTransactionsResponse, call.version, body)
    states = res.transaction_states
    res.transaction_states = yield from slices.chosen(states, lambda t: not own.is_transactional(t.transactional_id))
    return (yield from slices.encoded(res, call.version))
