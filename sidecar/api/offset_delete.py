"""OffsetDelete (api 47, KIP-496): the offsets of single topics go, at the broker.

v0: KIP-496.

The offsets of a topic stay while a member of the group subscribes to it, or may do so as far as is known. A group with
members that are no consumers keeps all of them (docs/reference/behaviour.md, row 1.30; Kafka's OffsetMetadataManager).

The client needs READ of each topic. The broker that deletes sees the client's principal only on the client's own
connection. If it is another broker, and for topics that are not sent on, the client's own broker is asked beforehand.
Its answer also shows which partitions exist: as at a broker, any other one is UNKNOWN_TOPIC_OR_PARTITION.

The broker must judge by the same topics: before the request goes on, the coordinator's placeholder there shows it the
group's subscription, which it otherwise keeps back (docs/design/decisions.md, Placeholder members).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, coordinate
from sidecar.api.store import store
from sidecar.core.runtime.events import Answer, DeletionCheck, DeletionCheckReply
from sidecar.core.share.config import SHARE
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import OpenOffsets
from sidecar.wire.generated import offset_delete as od


def offset_delete(call: Call) -> Handler:
    req = yield from slices.request(call, od.OffsetDeleteRequest)
    if not req.group_id or not call.scope.managed(req.group_id):  # any broker refuses an empty id
        return FORWARD
    if (code := (yield from access.refused_delete(call, req.group_id))) != Code.NONE:
        return od.OffsetDeleteResponse(error_code=code).encode(call.version)
    group: DeletionCheckReply = yield from coordinate(DeletionCheck(req.group_id))
    if group.code != Code.NONE:
        return od.OffsetDeleteResponse(error_code=group.code).encode(call.version)
    if group.kind == SHARE:  # it has no offsets, as at a broker
        return od.OffsetDeleteResponse(error_code=Code.GROUP_ID_NOT_FOUND).encode(call.version)
    if group.opaque:
        return od.OffsetDeleteResponse(error_code=Code.NON_EMPTY_GROUP).encode(call.version)
    elsewhere = call.view.authorizer and call.keeper_of(req.group_id) != call.scope.node_id
    doubtful = [t.name for t in req.topics if elsewhere or group.subscribed_all or t.name in group.subscribed]
    readable = yield from access.readable_topics(call, doubtful)
    unreadable = set(doubtful) - readable.keys()
    kept = [t for t in req.topics if t.name in unreadable or group.subscribed_all or t.name in group.subscribed]
    names = {t.name for t in kept}
    req.topics = [t for t in req.topics if t.name not in names]
    res = od.OffsetDeleteResponse()
    if req.topics or not kept or not group.exists:  # only the broker knows a group that has nothing but offsets
        opened: Answer = yield from coordinate(OpenOffsets(req.group_id, group.subscribed))
        if opened.code != Code.NONE:
            return od.OffsetDeleteResponse(error_code=opened.code).encode(call.version)
        body = yield from store(call, req.group_id, call.version, (yield from slices.encoded(req, call.version)))
        res = yield from slices.decoded(od.OffsetDeleteResponse, call.version, body)
        if group.exists and res.error_code == Code.GROUP_ID_NOT_FOUND:
            # The broker has no offset of it, but the group is there: nothing to delete is no error.
            remaining = yield from access.readable_topics(call, (t.name for t in req.topics))
            res = od.OffsetDeleteResponse(topics=_answers(req.topics, Code.NONE, remaining))
    if res.error_code == Code.NONE:
        res.topics += _answers(kept, Code.GROUP_SUBSCRIBED_TO_TOPIC, readable)
    return (yield from slices.encoded(res, call.version))


def _answers(
    topics: Iterable[od.OffsetDeleteRequestTopic], code: Code, readable: Mapping[str, Set[int]]
) -> list[od.OffsetDeleteResponseTopic]:
    """Returns `code` for each partition, unless the principal may not read its topic or it does not exist."""

    def answer(topic: str, partition: int) -> od.OffsetDeleteResponsePartition:
        if topic not in readable:
            return od.OffsetDeleteResponsePartition(partition, Code.TOPIC_AUTHORIZATION_FAILED)
        known = partition in readable[topic]
        return od.OffsetDeleteResponsePartition(partition, code if known else Code.UNKNOWN_TOPIC_OR_PARTITION)

    return [
        od.OffsetDeleteResponseTopic(t.name, [answer(t.name, p.partition_index) for p in t.partitions])
        for t in topics
        if t.partitions
    ]
