"""StreamsGroupHeartbeat, StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.api.streams_group_heartbeat import _topology as read_topology
from sidecar.core.streams.topology import TopicInfo
from sidecar.wire.generated import streams_group_describe as td
from sidecar.wire.generated import streams_group_heartbeat as th
from tests.whole.broker import rights as rt
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.streams import LEAVES, Beat, StoredStreams, StreamsGroups, Task, by_subtopology


def _streams(ctx: Context, group_id: str, operation: int) -> StreamsGroups:
    """Raises Refused."""
    if not ctx.may(operation, rt.GROUP, group_id):
        raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
    return ctx.node.groups.shard(group_id).streams


def streams_group_heartbeat(ctx: Context, req: th.StreamsGroupHeartbeatRequest, reply: Reply) -> None:
    group_id, member_id = req.group_id, req.member_id
    ctx.node.cluster.on_asked(ctx.node.node_id, group_id, member_id)
    told = (
        None
        if req.active_tasks is None
        else frozenset((t.subtopology_id, p) for t in req.active_tasks for p in t.partitions)
    )
    topology = None if req.topology is None else read_topology(req.topology)
    client = (ctx.client_id, f"/{ctx.peer}")
    try:
        streams = _streams(ctx, group_id, rt.READ)
        epoch, tells = streams.heartbeat(
            Beat(group_id, member_id, req.member_epoch, topology, req.process_id or "", client, told)
        )
    except Refused as exc:
        reply(th.StreamsGroupHeartbeatResponse(error_code=exc.code, error_message=exc.text))
        return
    ctx.node.cluster.on_joined(group_id, member_id, epoch)
    res = th.StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
    res.heartbeat_interval_ms = (
        0 if epoch == LEAVES else ctx.node.settings.number("group.streams.heartbeat.interval.ms")
    )
    if epoch != LEAVES:
        group = streams.groups[group_id]
        status = streams.configured(group).status
        res.status = [] if status is None else [th.Status(int(status.code), status.detail)]
        if tells:
            given = by_subtopology(group.members[member_id].assigned)
            res.active_tasks = [th.ResponseTaskIds(name, ps) for name, ps in given.items()]
            res.standby_tasks, res.warmup_tasks = [], []
    ctx.node.groups.shard(group_id).settle(
        lambda late: reply(th.StreamsGroupHeartbeatResponse(error_code=late) if late else res)
    )


def streams_group_describe(ctx: Context, req: td.StreamsGroupDescribeRequest, reply: Reply) -> None:
    found = []
    for group_id in req.group_ids:
        try:
            found.append(_described(ctx, group_id))
        except Refused as exc:
            found.append(td.DescribedGroup(exc.code, exc.text, group_id))
    reply(td.StreamsGroupDescribeResponse(0, found))


def _described(ctx: Context, group_id: str) -> td.DescribedGroup:
    streams = _streams(ctx, group_id, rt.DESCRIBE)
    group = streams.groups.get(group_id)
    if group is None:
        raise Refused(Err.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    members = [
        td.Member(
            member_id,
            m.epoch,
            client_id=m.client[0],
            client_host=m.client[1],
            topology_epoch=group.topology.epoch,
            process_id=m.process_id,
            assignment=td.Assignment(_ids(m.assigned)),
            target_assignment=td.Assignment(_ids(group.target(member_id))),
        )
        for member_id, m in group.members.items()
    ]
    told = td.DescribedGroup(0, None, group_id, group.state(), group.epoch, group.epoch)
    told.topology, told.members = _topology(streams, group), members
    return told


def _ids(tasks: Iterable[Task]) -> list[td.TaskIds]:
    return [td.TaskIds(name, ps) for name, ps in by_subtopology(tasks).items()]


def _topology(streams: StreamsGroups, group: StoredStreams) -> td.Topology:
    """With the numbers of partitions that have been computed, and without copartition groups."""
    configured = streams.configured(group).subtopologies

    def info(sub: str, topics: Iterable[TopicInfo], kind: str) -> list[td.TopicInfo]:
        counts = {t.name: t.partitions for t in getattr(configured[sub], kind)} if sub in configured else {}
        return [
            td.TopicInfo(
                t.name, counts.get(t.name, t.partitions), t.replication_factor, [td.KeyValue(*c) for c in t.configs]
            )
            for t in topics
        ]

    return td.Topology(
        group.topology.epoch,
        [
            td.Subtopology(
                s.subtopology_id,
                list(s.source_topics),
                list(s.repartition_sink_topics),
                info(s.subtopology_id, s.changelog_topics, "changelog_topics"),
                info(s.subtopology_id, s.repartition_source_topics, "repartition_source_topics"),
            )
            for s in group.topology.subtopologies
        ],
    )
