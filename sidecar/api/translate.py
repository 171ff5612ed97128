"""Kafka messages to the coordinator's events and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.errors import Code
from sidecar.core.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.records import Partitions
from sidecar.core.topics import TopicImage
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg

NO_OPERATIONS = -2147483648


def to_heartbeat(
    req: ch.ConsumerGroupHeartbeatRequest, version: int, client_id: str | None, host: str, new_member_id: str
) -> ConsumerHeartbeat:
    owned = req.topic_partitions
    names = req.subscribed_topic_names
    return ConsumerHeartbeat(
        group_id=req.group_id,
        member_id=req.member_id,
        member_epoch=req.member_epoch,
        instance_id=req.instance_id,
        rack_id=req.rack_id,
        rebalance_timeout_ms=req.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=req.subscribed_topic_regex,
        server_assignor=req.server_assignor,
        owned=None if owned is None else {t.topic_id: tuple(t.partitions) for t in owned},
        client_id=client_id or "",
        client_host="/" + host,
        version=version,
        new_member_id=new_member_id,
    )


def from_heartbeat(reply: HeartbeatReply) -> ch.ConsumerGroupHeartbeatResponse:
    assignment: ch.Assignment | None = None
    if reply.assignment is not None:
        parts = [ch.ResponseTopicPartitions(topic_id=t, partitions=list(ps)) for t, ps in reply.assignment.items()]
        assignment = ch.Assignment(topic_partitions=parts)
    return ch.ConsumerGroupHeartbeatResponse(
        error_code=reply.code,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def describe(group: ConsumerGroup, image: TopicImage, assignor: str) -> cd.DescribedGroup:
    """ConsumerGroupDescribe of one group (KIP-848). `assignor`: what most members ask for now."""
    return cd.DescribedGroup(
        group_id=group.group_id,
        group_state=str(group.state()),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[_member(m, group, image) for m in group.members.values()],
        authorized_operations=NO_OPERATIONS,
    )


def topics_of(told: cd.DescribedGroup) -> set[str]:
    """All topics that a description names."""
    parts = (a for m in told.members for a in (m.assignment, m.target_assignment))
    return {t.topic_name for a in parts for t in a.topic_partitions}


def _member(m: Member, group: ConsumerGroup, image: TopicImage) -> cd.Member:
    return cd.Member(
        member_id=m.member_id,
        instance_id=m.instance_id,
        rack_id=m.rack_id,
        member_epoch=m.member_epoch,
        client_id=m.client_id,
        client_host=m.client_host,
        subscribed_topic_names=list(m.topic_names),
        subscribed_topic_regex=m.topic_regex or "",
        # What it must give up is still its own to answer for.
        assignment=_assignment(m.held_partitions(), image),
        target_assignment=_assignment(group.target.of(m.member_id), image),
        member_type=1,
    )


def _assignment(parts: Partitions, image: TopicImage) -> cd.Assignment:
    known = [(t, image.by_id[t].name, ps) for t, ps in parts.items() if t in image.by_id]
    return cd.Assignment([cd.TopicPartitions(t, name, list(ps)) for t, name, ps in known])


def describe_error(group_id: str, code: Code, message: str | None) -> cd.DescribedGroup:
    return cd.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id, authorized_operations=NO_OPERATIONS
    )


def not_classic(group_id: str, code: Code, version: int) -> dg.DescribedGroup:
    """DescribeGroups of what is no classic group: 'Dead', from v6 an error (Kafka's describeGroups)."""
    if code != Code.NONE:
        return dg.DescribedGroup(error_code=code, group_id=group_id)
    if version < 6:
        return dg.DescribedGroup(group_id=group_id, group_state="Dead")
    message = f"Group {group_id} is not a classic group."
    return dg.DescribedGroup(
        error_code=Code.GROUP_ID_NOT_FOUND, error_message=message, group_id=group_id, group_state="Dead"
    )


def matches(wanted: Iterable[str] | None, value: str) -> bool:
    """A filter of ListGroups: case-insensitive, empty takes all (KIP-518, KIP-848)."""
    names = {w.strip().lower() for w in wanted or ()}
    return not names or value.lower() in names
