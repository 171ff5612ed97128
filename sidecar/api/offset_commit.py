"""OffsetCommit (api 8) and TxnOffsetCommit (api 28): the member is checked here, the broker stores the offsets.

OffsetCommit
v5: the retention time is gone; the broker's setting decides (v2-v4 have it).
v6: it adds the leader epoch.
v7: it adds the group instance id (KIP-345).
v8: it is flexible.
v9: members of consumer groups may commit; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may be answered (KIP-848).
v10: topics are named by id instead of by name (KIP-848).

TxnOffsetCommit
v2: it adds the leader epoch.
v3: it is flexible and adds member id, generation id and group instance id (KIP-447).
v4: TRANSACTION_ABORTABLE may be answered (KIP-890).
v5: the broker adds the partition to the transaction itself (KIP-890).

The broker accepts offsets of a group of which it has no members only with generation -1 and without a member id
(docs/reference/measurements.md, 'Offsets and authorisation'), so a checked request goes on without them. It goes to
the leader of the group's `__consumer_offsets` partition.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sidecar.api import access
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate, store
from sidecar.core.errors import Code
from sidecar.core.offsets import CheckReply, CommitCheck, Place
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import ZERO_UUID


def offset_commit(call: Call) -> Handler:
    req = oc.OffsetCommitRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.managed(req.group_id):
        return FORWARD
    places = tuple((t.name, t.topic_id, p.partition_index) for t in req.topics for p in t.partitions)
    event = CommitCheck(
        req.group_id,
        req.member_id,
        req.generation_id_or_member_epoch,
        req.group_instance_id,
        call.version,
        False,
        places,
    )
    check = yield from _check(call, event)
    if check.code != Code.NONE:
        return _failed(req, check.code).encode(call.version)
    version = _broker_version(call)
    _strip(req, check.partitions)
    body = yield from store(call, req.group_id, version, req.encode(version))
    if version == call.version and not check.partitions:
        return body
    res = oc.OffsetCommitResponse.decode(version, body)
    _merge(res, check)
    return res.encode(call.version)


def txn_offset_commit(call: Call) -> Handler:
    req = tc.TxnOffsetCommitRequest.decode(call.version, call.frame, call.pos)
    if not call.scope.managed(req.group_id):
        return FORWARD
    places = tuple((t.name, ZERO_UUID, p.partition_index) for t in req.topics for p in t.partitions)
    event = CommitCheck(
        req.group_id, req.member_id, req.generation_id, req.group_instance_id, call.version, True, places
    )
    check = yield from _check(call, event)
    code = check.code if check.code != Code.NONE else check.partition_code  # a transaction stands or falls as a whole
    if code != Code.NONE:
        return _txn_failed(req, code).encode(call.version)
    req.generation_id, req.member_id, req.group_instance_id = -1, "", None
    return (yield from store(call, req.group_id, call.version, req.encode(call.version)))


def _check(call: Call, event: CommitCheck) -> Generator[Want, Any, CheckReply]:
    """A commit needs READ of the group; the broker itself asks for READ of the topics."""
    if (refused := (yield from access.refused_read(call, event.group_id))) != Code.NONE:
        return CheckReply(refused)
    check = yield from coordinate(event)
    assert isinstance(check, CheckReply)
    return check


def _broker_version(call: Call) -> int:
    known = (call.client.broker_versions or {}).get(call.api_key)
    return call.version if known is None else min(call.version, known[1])


def _strip(req: oc.OffsetCommitRequest, refused: frozenset[Place]) -> None:
    """Without the member, and without what was refused."""
    req.generation_id_or_member_epoch, req.member_id, req.group_instance_id = -1, "", None
    if refused:
        for t in req.topics:
            t.partitions = [p for p in t.partitions if (t.name, t.topic_id, p.partition_index) not in refused]
        req.topics = [t for t in req.topics if t.partitions]


def _merge(res: oc.OffsetCommitResponse, check: CheckReply) -> None:
    """Add the partitions that were not sent on."""
    by_topic: dict[tuple[str, bytes], list[oc.OffsetCommitResponsePartition]] = {}
    for name, topic_id, partition in sorted(check.partitions):
        refused = oc.OffsetCommitResponsePartition(partition, check.partition_code)
        by_topic.setdefault((name, topic_id), []).append(refused)
    for t in res.topics:
        t.partitions += by_topic.pop((t.name, t.topic_id), [])
    for (name, topic_id), parts in by_topic.items():
        res.topics.append(oc.OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=parts))


def _failed(req: oc.OffsetCommitRequest, code: int) -> oc.OffsetCommitResponse:
    topics = [
        oc.OffsetCommitResponseTopic(
            name=t.name,
            topic_id=t.topic_id,
            partitions=[oc.OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions],
        )
        for t in req.topics
    ]
    return oc.OffsetCommitResponse(topics=topics)


def _txn_failed(req: tc.TxnOffsetCommitRequest, code: int) -> tc.TxnOffsetCommitResponse:
    topics = [
        tc.TxnOffsetCommitResponseTopic(
            t.name, [tc.TxnOffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
        )
        for t in req.topics
    ]
    return tc.TxnOffsetCommitResponse(topics=topics)
