"""OffsetCommit, OffsetFetch, TxnOffsetCommit, OffsetDelete of managed groups: checked here, stored by the broker.

They go to the leader of the group's `__consumer_offsets` partition: on the client's own connection when that is
the broker behind this sidecar (so the broker authorises them), else on the sidecar's connection to that broker.
"""

from __future__ import annotations

from sidecar.api import offsets as po
from sidecar.core.errors import Code
from sidecar.core.events import CheckReply, CommitCheck, FetchCheck
from sidecar.proxy.connection import Got
from sidecar.runtime.front import Front
from sidecar.runtime.host import now
from sidecar.runtime.session import Session
from sidecar.wire.apis import SERVED, response_flexible
from sidecar.wire.frames import response_body
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import txn_offset_commit as tc


async def _store(front: Front, session: Session, got: Got, group_id: str, version: int, body: bytes) -> bytes:
    """Send to the broker that keeps this group's offsets; returns the response's body."""
    flexible = version >= SERVED[got.api_key].flexible_from
    leader = front.offsets_leader(group_id)
    if leader == front.settings.node_id or leader < 0 or front.host is None:
        frame = await front.ask(session, got, got.api_key, version, body, flexible)
    else:
        conn = await front.host.cluster.node(leader)
        frame = await conn.raw(got.api_key, version, body, flexible)
    return frame[response_body(frame, response_flexible(got.api_key, version)) :]


async def _check(front: Front, session: Session, got: Got, check: CommitCheck | FetchCheck) -> CheckReply:
    if isinstance(check, FetchCheck):
        refused = bool(await front.access.hidden_groups(session, got, [check.group_id]))
    else:
        refused = bool(await front.access.read_group(session, got, check.group_id))
    if refused:
        return CheckReply(Code.GROUP_AUTHORIZATION_FAILED)
    owned = await front.owned(check.group_id)
    return CheckReply(owned) if isinstance(owned, Code) else owned.shard.check(check, now())


def _broker_version(session: Session, api_key: int, version: int) -> int:
    known = (session.broker_versions or {}).get(api_key)
    return version if known is None else min(version, known[1])


async def offset_commit(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = oc.OffsetCommitRequest.decode(got.version, got.frame, pos)
    if not front.managed(req.group_id):
        session.forward(got)
        return
    check = await _check(front, session, got, po.commit_check(req, got.version, False))
    if check.code != Code.NONE:
        front.body_reply(session, got, po.commit_failed(req, check.code).encode(got.version))
        return
    version = _broker_version(session, got.api_key, got.version)
    po.strip_commit(req, check.partitions)
    body = await _store(front, session, got, req.group_id, version, req.encode(version))
    if version != got.version or check.partitions:
        res = oc.OffsetCommitResponse.decode(version, body)
        po.merge_refused(res, check)
        body = res.encode(got.version)
    front.body_reply(session, got, body)


async def txn_offset_commit(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = tc.TxnOffsetCommitRequest.decode(got.version, got.frame, pos)
    if not front.managed(req.group_id):
        session.forward(got)
        return
    check = await _check(front, session, got, po.commit_check(req, got.version, True))
    code = check.code if check.code != Code.NONE else check.partition_code
    if code != Code.NONE:
        front.body_reply(session, got, po.txn_failed(req, code).encode(got.version))
        return
    po.strip_txn(req)
    body = await _store(front, session, got, req.group_id, got.version, req.encode(got.version))
    front.body_reply(session, got, body)


async def offset_fetch(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = of.OffsetFetchRequest.decode(got.version, got.frame, pos)
    wanted = po.fetch_groups(req, got.version)
    managed = [w for w in wanted if front.managed(w[0])]
    if not managed:
        session.forward(got)
        return
    errors: dict[str, Code] = {}
    for group_id, member_id, epoch in managed:
        check = await _check(front, session, got, FetchCheck(group_id, member_id, epoch))
        if check.code != Code.NONE:
            errors[group_id] = check.code
    keep = {g for g, _, _ in wanted} - errors.keys()
    if not keep:
        front.body_reply(session, got, po.fetch_failed(req, got.version, errors).encode(got.version))
        return
    failed = po.fetch_failed(req, got.version, errors) if errors else None
    if got.version >= 8:
        po.strip_fetch(req, keep)
    first = next(g for g, _, _ in wanted if g in keep)
    body = await _store(front, session, got, first, got.version, req.encode(got.version))
    if failed is not None:
        res = of.OffsetFetchResponse.decode(got.version, body)
        res.groups += failed.groups
        body = res.encode(got.version)
    front.body_reply(session, got, body)


async def offset_delete(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    """Not of a topic that a member of the group subscribes to (Kafka's OffsetMetadataManager.deleteOffsets)."""
    req = od.OffsetDeleteRequest.decode(got.version, got.frame, pos)
    if not front.managed(req.group_id):
        session.forward(got)
        return
    owned = await front.owned(req.group_id)
    if await front.access.hidden_groups(session, got, [req.group_id]):
        owned = Code.GROUP_AUTHORIZATION_FAILED
    if isinstance(owned, Code):
        front.body_reply(session, got, po.delete_failed(owned).encode(got.version))
        return
    group = owned.shard.groups.get(req.group_id)
    subscribed = group.subscribed_topics() if group is not None else set()
    kept = [t for t in req.topics if t.name in subscribed]
    req.topics = [t for t in req.topics if t.name not in subscribed]
    res = od.OffsetDeleteResponse()
    if req.topics or not kept:
        body = await _store(front, session, got, req.group_id, got.version, req.encode(got.version))
        res = od.OffsetDeleteResponse.decode(got.version, body)
        if group is not None and res.error_code == Code.GROUP_ID_NOT_FOUND:
            # The broker has no offset of it, but the group is there: nothing to delete is no error.
            there = [
                od.OffsetDeleteResponseTopic(
                    t.name, [od.OffsetDeleteResponsePartition(p.partition_index) for p in t.partitions]
                )
                for t in req.topics
            ]
            res = od.OffsetDeleteResponse(topics=there)
    for t in kept:
        code = Code.GROUP_SUBSCRIBED_TO_TOPIC
        parts = [od.OffsetDeleteResponsePartition(p.partition_index, code) for p in t.partitions]
        res.topics.append(od.OffsetDeleteResponseTopic(t.name, parts))
    front.body_reply(session, got, res.encode(got.version))
