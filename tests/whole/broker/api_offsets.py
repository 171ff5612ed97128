"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import txn_offset_commit as tc
from tests.whole.broker import rights as rt
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.groups import OFFSETS
from tests.whole.broker.image import Topic
from tests.whole.broker.offsets import ZERO, Committed, Place

TOPIC_IDS_SINCE = 10


def _resolve(ctx: Context, name: str, topic_id: bytes, by_id: bool) -> Topic | None:
    """Raises Refused."""
    image = ctx.node.image
    found = image.by_id(topic_id) if by_id else image.topics.get(name)
    if by_id and found is None:
        raise Refused(Err.UNKNOWN_TOPIC_ID)
    if not ctx.may(rt.READ, rt.TOPIC, found.name if found is not None else name):
        raise Refused(Err.TOPIC_AUTHORIZATION_FAILED)
    return found


# ---- OffsetCommit -------------------------------------------------------------------------------------------------
def offset_commit(ctx: Context, req: oc.OffsetCommitRequest, reply: Reply) -> None:
    """Finds the codes that concern topics first; the rest goes to the coordinator, and has one code."""
    ctx.node.cluster.on_asked(ctx.node.node_id, req.group_id, req.member_id)
    codes: dict[tuple[int, int], Err] = {}
    left: list[tuple[tuple[int, int], Place, Committed]] = []
    now_ms = ctx.node.host.wall_ms()
    expire_ms = now_ms + req.retention_time_ms if 2 <= ctx.version <= 4 and req.retention_time_ms != -1 else -1

    def told() -> None:
        topics = []
        for n, t in enumerate(req.topics):
            parts = [
                oc.OffsetCommitResponsePartition(p.partition_index, codes[n, i]) for i, p in enumerate(t.partitions)
            ]
            topics.append(oc.OffsetCommitResponseTopic(t.name, t.topic_id, parts))
        reply(oc.OffsetCommitResponse(0, topics))

    for n, t in enumerate(req.topics):
        for i, p in enumerate(t.partitions):
            try:
                if not ctx.may(rt.READ, rt.GROUP, req.group_id):
                    raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
                known = _resolve(ctx, t.name, t.topic_id, ctx.version >= TOPIC_IDS_SINCE)
                if known is None or not 0 <= p.partition_index < len(known.partitions):
                    raise Refused(Err.UNKNOWN_TOPIC_OR_PARTITION)
                said = p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now_ms
                value = Committed(*said, expire_ms, known.topic_id)
                left.append(((n, i), (known.name, p.partition_index), value))
            except Refused as exc:
                codes[n, i] = exc.code
    if not left:
        told()
        return

    def done(code: Err) -> None:
        for at, _, _ in left:
            codes.setdefault(at, code)
        told()

    member = (req.member_id, req.group_instance_id, req.generation_id_or_member_epoch)
    _commit(ctx, req.group_id, member, left, codes, done)


def _commit(
    ctx: Context,
    group_id: str,
    member: tuple[str, str | None, int],
    left: list[tuple[tuple[int, int], Place, Committed]],
    codes: dict[tuple[int, int], Err],
    done: Callable[[Err], None],
) -> None:
    try:
        shard = ctx.node.groups.shard(group_id)
        shard.check_commit(group_id, member, ctx.version, False)
    except Refused as exc:
        done(exc.code)
        return
    most = ctx.node.settings.number("offset.metadata.max.bytes")
    codes |= {at: Err.OFFSET_METADATA_TOO_LARGE for at, _, v in left if len(v.metadata) > most}
    shard.commit(group_id, [(place, v) for at, place, v in left if at not in codes], done)


# ---- TxnOffsetCommit ----------------------------------------------------------------------------------------------
def txn_offset_commit(ctx: Context, req: tc.TxnOffsetCommitRequest, reply: Reply) -> None:
    codes: dict[tuple[int, int], Err] = {}
    left: list[tuple[tuple[int, int], Place, Committed]] = []
    now_ms = ctx.node.host.wall_ms()

    def told() -> None:
        topics = []
        for n, t in enumerate(req.topics):
            parts = [
                tc.TxnOffsetCommitResponsePartition(p.partition_index, _older(ctx, codes[n, i]))
                for i, p in enumerate(t.partitions)
            ]
            topics.append(tc.TxnOffsetCommitResponseTopic(t.name, partitions=parts))
        reply(tc.TxnOffsetCommitResponse(0, topics))

    for n, t in enumerate(req.topics):
        for i, p in enumerate(t.partitions):
            try:
                if not ctx.may(rt.WRITE, rt.TRANSACTIONAL_ID, req.transactional_id):
                    raise Refused(Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                if not ctx.may(rt.READ, rt.GROUP, req.group_id):
                    raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
                known = _resolve(ctx, t.name, ZERO, False)
                if known is None or not 0 <= p.partition_index < len(known.partitions):
                    raise Refused(Err.UNKNOWN_TOPIC_OR_PARTITION)
                said = p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now_ms
                left.append(((n, i), (t.name, p.partition_index), Committed(*said)))
            except Refused as exc:
                codes[n, i] = exc.code
    if not left:
        told()
        return

    def done(code: Err) -> None:
        for at, _, _ in left:
            codes.setdefault(at, code)
        told()

    _InTransaction(ctx, req, left, codes, done).start()


def _older(ctx: Context, code: Err) -> Err:
    loading = code == Err.COORDINATOR_LOAD_IN_PROGRESS and ctx.version < 2
    return Err.COORDINATOR_NOT_AVAILABLE if loading else code


@dataclass(slots=True)
class _InTransaction:
    """A TxnOffsetCommit at the coordinator of the group, who asks that of the transaction first."""

    ctx: Context
    req: tc.TxnOffsetCommitRequest
    left: list[tuple[tuple[int, int], Place, Committed]]
    codes: dict[tuple[int, int], Err]
    done: Callable[[Err], None]

    def start(self) -> None:
        node, req = self.ctx.node, self.req
        try:
            if not req.group_id:
                raise Refused(Err.INVALID_GROUP_ID)
            index = node.groups.partition(req.group_id)
            replica = node.replica(OFFSETS, index)
            if replica is None:
                raise Refused(Err.NOT_COORDINATOR)
        except Refused as exc:
            self.done(exc.code)
            return
        known = replica.log.producers.get(req.producer_id)
        if known is not None and known.open_from >= 0 and known.epoch == req.producer_epoch:
            self._append(Err.NONE)
            return
        who, place = (req.producer_id, req.producer_epoch), (OFFSETS, index)
        node.txns.join_transaction(req.transactional_id, who, place, self.ctx.version >= 5, self._append)

    def _append(self, code: Err) -> None:
        node, req = self.ctx.node, self.req
        if code == Err.TRANSACTION_ABORTABLE and self.ctx.version < 4:
            code = Err.INVALID_TXN_STATE
        if code == Err.PRODUCER_FENCED:
            code = Err.INVALID_PRODUCER_EPOCH
        try:
            if code != Err.NONE:
                raise Refused(code)
            shard = node.groups.shard(req.group_id)
            member = (req.member_id, req.group_instance_id, req.generation_id_or_member_epoch)
            shard.check_commit(req.group_id, member, self.ctx.version, True)
            known = shard.replica.log.producers.get(req.producer_id)
            if known is not None and known.epoch > req.producer_epoch:
                raise Refused(Err.INVALID_PRODUCER_EPOCH)
        except Refused as exc:
            self.done(exc.code)
            return
        most = node.settings.number("offset.metadata.max.bytes")
        self.codes |= {at: Err.OFFSET_METADATA_TOO_LARGE for at, _, v in self.left if len(v.metadata) > most}
        chosen = [(place, v) for at, place, v in self.left if at not in self.codes]
        shard.commit(req.group_id, chosen, self.done, (req.producer_id, req.producer_epoch))


# ---- OffsetFetch --------------------------------------------------------------------------------------------------
def offset_fetch(ctx: Context, req: of.OffsetFetchRequest, reply: Reply) -> None:
    if ctx.version >= 8:
        asked = req.groups
    else:
        topics = (
            None
            if req.topics is None
            else [of.OffsetFetchRequestTopics(t.name, ZERO, t.partition_indexes) for t in req.topics]
        )
        asked = [of.OffsetFetchRequestGroup(req.group_id, None, -1, topics)]
    found: dict[int, of.OffsetFetchResponseGroup] = {}

    def told(n: int, g: of.OffsetFetchResponseGroup) -> None:
        found[n] = g
        if len(found) == len(asked):
            groups = [found[i] for i in range(len(asked))]
            reply(of.OffsetFetchResponse(groups=groups) if ctx.version >= 8 else _single(ctx, asked[0], groups[0]))

    if not asked:
        reply(of.OffsetFetchResponse())
    for n, group in enumerate(asked):
        _Fetch(ctx, group, req.require_stable, partial(told, n)).start()


def _single(ctx: Context, asked: of.OffsetFetchRequestGroup, g: of.OffsetFetchResponseGroup) -> of.OffsetFetchResponse:
    """Before version 8; before version 2 an error is that of each partition."""
    rows = [
        of.OffsetFetchResponseTopic(
            t.name,
            [
                of.OffsetFetchResponsePartition(
                    p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
                )
                for p in t.partitions
            ],
        )
        for t in g.topics
    ]
    if ctx.version < 2 and g.error_code:
        rows = [
            of.OffsetFetchResponseTopic(
                t.name, [of.OffsetFetchResponsePartition(i, -1, -1, "", g.error_code) for i in t.partition_indexes]
            )
            for t in asked.topics or ()
        ]
    return of.OffsetFetchResponse(0, rows, g.error_code if ctx.version >= 2 else 0)


@dataclass(slots=True)
class _Fetch:
    """One group of an OffsetFetch request."""

    ctx: Context
    asked: of.OffsetFetchRequestGroup
    stable: bool
    told: Callable[[of.OffsetFetchResponseGroup], None]

    def start(self) -> None:
        ctx, group_id = self.ctx, self.asked.group_id
        try:
            if not ctx.may(rt.DESCRIBE, rt.GROUP, group_id):
                raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
            shard = ctx.node.groups.shard(group_id)
            response = of.OffsetFetchResponseGroup(group_id, self._all() if self.asked.topics is None else self._some())
        except Refused as exc:
            self._refuse(exc.code)
            return
        if self.stable:
            shard.settle(lambda late: self._refuse(late) if late else self.told(response))
        else:
            self.told(response)

    def _refuse(self, code: Err) -> None:
        self.told(of.OffsetFetchResponseGroup(self.asked.group_id, [], code))

    def _rows(self, places: list[Place] | None) -> list[tuple[Place, Committed | Err | None]]:
        shard = self.ctx.node.groups.shard(self.asked.group_id)
        return list(shard.fetch(self.asked.group_id, places, self.stable))

    def _all(self) -> list[of.OffsetFetchResponseTopics]:
        topics: dict[str, of.OffsetFetchResponseTopics] = {}
        for (name, index), value in self._rows(None):
            if not self.ctx.may(rt.DESCRIBE, rt.TOPIC, name):
                continue
            known = self.ctx.node.image.topics.get(name)
            if self.ctx.version >= TOPIC_IDS_SINCE and known is None:
                continue
            topic_id = known.topic_id if known is not None else ZERO
            t = topics.setdefault(name, of.OffsetFetchResponseTopics(name, topic_id))
            t.partitions.append(_partition(index, value))
        return list(topics.values())

    def _some(self) -> list[of.OffsetFetchResponseTopics]:
        found, wrong = [], []
        by_id = self.ctx.version >= TOPIC_IDS_SINCE
        for t in self.asked.topics or ():
            known = self.ctx.node.image.by_id(t.topic_id) if by_id else None
            name = known.name if known is not None else t.name
            code = Err.NONE
            if by_id and known is None:
                code = Err.UNKNOWN_TOPIC_ID
            elif not self.ctx.may(rt.DESCRIBE, rt.TOPIC, name):
                code = Err.TOPIC_AUTHORIZATION_FAILED
            if code:
                parts = [of.OffsetFetchResponsePartitions(i, -1, -1, "", code) for i in t.partition_indexes]
                wrong.append(of.OffsetFetchResponseTopics(t.name, t.topic_id, parts))
                continue
            rows = self._rows([(name, i) for i in t.partition_indexes])
            parts = [_partition(i, self._same_topic(v, t.topic_id)) for (_, i), v in rows]
            found.append(of.OffsetFetchResponseTopics(name, t.topic_id, parts))
        return [*found, *wrong]

    @staticmethod
    def _same_topic(value: Committed | Err | None, topic_id: bytes) -> Committed | Err | None:
        """An offset of a former topic of that name is none."""
        other = isinstance(value, Committed) and ZERO not in (value.topic_id, topic_id) and value.topic_id != topic_id
        return None if other else value


def _partition(index: int, value: Committed | Err | None) -> of.OffsetFetchResponsePartitions:
    if isinstance(value, Committed):
        return of.OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)
    return of.OffsetFetchResponsePartitions(index, -1, -1, "", value or Err.NONE)


# ---- OffsetDelete -------------------------------------------------------------------------------------------------
def offset_delete(ctx: Context, req: od.OffsetDeleteRequest, reply: Reply) -> None:
    codes: dict[Place, Err] = {}
    for t in req.topics:
        known = ctx.node.image.topics.get(t.name)
        for p in t.partitions:
            if not ctx.may(rt.READ, rt.TOPIC, t.name):
                codes[t.name, p.partition_index] = Err.TOPIC_AUTHORIZATION_FAILED
            elif known is None or not 0 <= p.partition_index < len(known.partitions):
                codes[t.name, p.partition_index] = Err.UNKNOWN_TOPIC_OR_PARTITION
    places = [(t.name, p.partition_index) for t in req.topics for p in t.partitions]

    def told(late: Err = Err.NONE) -> None:
        if late:
            reply(od.OffsetDeleteResponse(late))
            return
        topics = [
            od.OffsetDeleteResponseTopic(
                t.name,
                [
                    od.OffsetDeleteResponsePartition(p.partition_index, codes[t.name, p.partition_index])
                    for p in t.partitions
                ],
            )
            for t in req.topics
        ]
        reply(od.OffsetDeleteResponse(0, 0, topics))

    try:
        if not ctx.may(rt.DELETE, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.group_id:
            raise Refused(Err.INVALID_GROUP_ID)
        shard = ctx.node.groups.shard(req.group_id)
        done, tombstones = shard.delete_offsets(req.group_id, [p for p in places if p not in codes])
        codes |= dict(done)
        shard.write(tombstones, told)
    except Refused as exc:
        told(exc.code)
