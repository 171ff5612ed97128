"""OffsetCommit, OffsetFetch, TxnOffsetCommit: what the broker is sent instead, and how refusals are merged. Pure.

The broker accepts offsets of a group it has no members of only with generation -1 and no member id
(measured.md, 'Offsets'), so a checked request goes on without them.
"""

from __future__ import annotations

from typing import Any

from sidecar.core.errors import Code
from sidecar.core.events import CheckReply, CommitCheck
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import ZERO_UUID

Where = tuple[str, bytes, int]


def commit_check(req: Any, version: int, transactional: bool) -> CommitCheck:
    epoch = req.generation_id if transactional else req.generation_id_or_member_epoch
    parts = tuple(
        (t.name, getattr(t, "topic_id", ZERO_UUID), p.partition_index) for t in req.topics for p in t.partitions
    )
    return CommitCheck(req.group_id, req.member_id, epoch, req.group_instance_id, version, transactional, parts)


def strip_commit(req: oc.OffsetCommitRequest, refused: frozenset[Where]) -> None:
    req.generation_id_or_member_epoch, req.member_id, req.group_instance_id = -1, "", None
    if refused:
        for t in req.topics:
            t.partitions = [p for p in t.partitions if (t.name, t.topic_id, p.partition_index) not in refused]
        req.topics = [t for t in req.topics if t.partitions]


def strip_txn(req: tc.TxnOffsetCommitRequest) -> None:
    req.generation_id, req.member_id, req.group_instance_id = -1, "", None


def commit_failed(req: oc.OffsetCommitRequest, code: int) -> oc.OffsetCommitResponse:
    topics = [
        oc.OffsetCommitResponseTopic(
            name=t.name,
            topic_id=t.topic_id,
            partitions=[oc.OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions],
        )
        for t in req.topics
    ]
    return oc.OffsetCommitResponse(topics=topics)


def txn_failed(req: tc.TxnOffsetCommitRequest, code: int) -> tc.TxnOffsetCommitResponse:
    topics = [
        tc.TxnOffsetCommitResponseTopic(
            t.name, [tc.TxnOffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
        )
        for t in req.topics
    ]
    return tc.TxnOffsetCommitResponse(topics=topics)


def merge_refused(res: oc.OffsetCommitResponse, check: CheckReply) -> None:
    """Add the partitions that were not sent on."""
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for name, topic_id, partition in sorted(check.partitions):
        by_topic.setdefault((name, topic_id), []).append(partition)
    for t in res.topics:
        for p in by_topic.pop((t.name, t.topic_id), []):
            t.partitions.append(oc.OffsetCommitResponsePartition(p, check.partition_code))
    for (name, topic_id), parts in by_topic.items():
        refused = [oc.OffsetCommitResponsePartition(p, check.partition_code) for p in parts]
        res.topics.append(oc.OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=refused))


def fetch_groups(req: of.OffsetFetchRequest, version: int) -> list[tuple[str, str | None, int]]:
    """(group id, member id, member epoch) of each group asked for."""
    if version < 8:
        return [(req.group_id, None, -1)]
    return [(g.group_id, g.member_id, g.member_epoch) for g in req.groups]


def strip_fetch(req: of.OffsetFetchRequest, keep: set[str]) -> None:
    """Only the groups in `keep` go on, without members."""
    req.groups = [g for g in req.groups if g.group_id in keep]
    for g in req.groups:
        g.member_id, g.member_epoch = None, -1


def fetch_failed(req: of.OffsetFetchRequest, version: int, errors: dict[str, Code]) -> of.OffsetFetchResponse:
    """v2-v7 have one error for all; v1 has one for each partition."""
    if version >= 8:
        groups = [of.OffsetFetchResponseGroup(group_id=g, error_code=c) for g, c in errors.items()]
        return of.OffsetFetchResponse(groups=groups)
    code = next(iter(errors.values()))
    topics = [
        of.OffsetFetchResponseTopic(
            name=t.name,
            partitions=[
                of.OffsetFetchResponsePartition(
                    partition_index=p, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
                )
                for p in t.partition_indexes
            ],
        )
        for t in (req.topics or ())
    ]
    return of.OffsetFetchResponse(error_code=code, topics=topics if version < 2 else [])


def delete_failed(code: Code) -> od.OffsetDeleteResponse:
    return od.OffsetDeleteResponse(error_code=code)
