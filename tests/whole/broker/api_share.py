"""ShareGroupHeartbeat, ShareGroupDescribe, DescribeShareGroupOffsets."""

from __future__ import annotations

from sidecar.wire.generated import describe_share_group_offsets as do
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.whole.broker import rights as rt
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.share import LEAVES, ShareGroups

WAITS_MS = 30_000.0
"""Milliseconds for which a request waits for a share coordinator that is away."""


def _shares(ctx: Context, group_id: str, operation: int) -> ShareGroups:
    """Raises Refused."""
    if not ctx.may(operation, rt.GROUP, group_id):
        raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
    return ctx.node.groups.shard(group_id).shares


def share_group_heartbeat(ctx: Context, req: sh.ShareGroupHeartbeatRequest, reply: Reply) -> None:
    ctx.node.cluster.on_asked(ctx.node.node_id, req.group_id, req.member_id)
    try:
        shares = _shares(ctx, req.group_id, rt.READ)
        epoch, told = shares.heartbeat(req.group_id, req.member_id, req.member_epoch, req.subscribed_topic_names)
    except Refused as exc:
        reply(sh.ShareGroupHeartbeatResponse(0, exc.code, exc.text))
        return
    ctx.node.cluster.on_joined(req.group_id, req.member_id, epoch)
    interval_ms = ctx.node.settings.number("group.share.heartbeat.interval.ms")
    res = sh.ShareGroupHeartbeatResponse(0, 0, None, req.member_id, epoch, 0 if epoch == LEAVES else interval_ms)
    if told:
        mine = shares.groups[req.group_id].members[req.member_id].assigned
        res.assignment = sh.Assignment([sh.TopicPartitions(t, ps) for t, ps in mine.items()])
    ctx.node.groups.shard(req.group_id).settle(
        lambda late: reply(sh.ShareGroupHeartbeatResponse(0, late) if late else res)
    )


def share_group_describe(ctx: Context, req: sd.ShareGroupDescribeRequest, reply: Reply) -> None:
    found = []
    for group_id in req.group_ids:
        try:
            found.append(_described(ctx, group_id))
        except Refused as exc:
            found.append(sd.DescribedGroup(exc.code, exc.text, group_id))
    reply(sd.ShareGroupDescribeResponse(0, found))


def _described(ctx: Context, group_id: str) -> sd.DescribedGroup:
    shares = _shares(ctx, group_id, rt.DESCRIBE)
    group = shares.groups.get(group_id)
    if group is None:
        classic = group_id in ctx.node.groups.shard(group_id).groups
        text = f"Group {group_id} is not a share group." if classic else f"Group {group_id} not found."
        raise Refused(Err.GROUP_ID_NOT_FOUND, text)
    members = []
    for member_id, member in group.members.items():
        has = []
        for topic_id, partitions in member.assigned.items():
            t = ctx.node.image.by_id(topic_id)
            if t is not None:
                has.append(sd.TopicPartitions(topic_id, t.name, partitions))
        told = sd.Member(member_id, None, member.epoch, "", "", list(member.topics), sd.Assignment(has))
        members.append(told)
    state = "Stable" if members else "Empty"
    return sd.DescribedGroup(0, None, group_id, state, group.epoch, group.epoch, "simple", members)


def describe_share_group_offsets(ctx: Context, req: do.DescribeShareGroupOffsetsRequest, reply: Reply) -> None:
    """For all topics that the group has state of. Nothing comes while the share coordinator is away."""

    def answer() -> None:
        reply(do.DescribeShareGroupOffsetsResponse(0, [_offsets(ctx, g.group_id) for g in req.groups]))

    if ctx.node.cluster.share_coordinator_away:
        ctx.node.later(WAITS_MS, answer)
    else:
        answer()


def _offsets(ctx: Context, group_id: str) -> do.DescribeShareGroupOffsetsResponseGroup:
    try:
        group = _shares(ctx, group_id, rt.DESCRIBE).groups.get(group_id)
    except Refused as exc:
        return do.DescribeShareGroupOffsetsResponseGroup(group_id, [], exc.code, exc.text)
    if group is None:
        text = f"Group {group_id} not found."
        return do.DescribeShareGroupOffsetsResponseGroup(group_id, [], Err.GROUP_ID_NOT_FOUND, text)
    topics = []
    for topic_id, partitions in sorted(group.initialised.items()):
        t = ctx.node.image.by_id(topic_id)
        if t is not None:
            told = [do.DescribeShareGroupOffsetsResponsePartition(p) for p in sorted(partitions)]
            topics.append(do.DescribeShareGroupOffsetsResponseTopic(t.name, topic_id, told))
    return do.DescribeShareGroupOffsetsResponseGroup(group_id, topics)
