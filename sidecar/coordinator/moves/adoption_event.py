"""The event of the core that takes a group in, made of the broker's description of the group."""

from __future__ import annotations

from sidecar.core.classic.adoption import AdoptClassic, NativeMember
from sidecar.core.consumer.adoption import AdoptConsumer, NativeConsumer
from sidecar.core.runtime.events import Event
from sidecar.core.share.adoption import AdoptShare, NativeShareMember
from sidecar.core.streams.adoption import AdoptStreams, NativeStreamsMember
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.kafka.native import CLASSIC, CONSUMER, SHARE, STREAMS, Member, Native, tasks
from sidecar.wire.generated import streams_group_describe as td

SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 300_000
"""Timeouts of adopted members: clients' defaults, as brokers do not describe them. They count until the next join."""


def obstacle(group: Native, max_tasks: int) -> str:
    """Returns why this group cannot be taken in even when it is stable; "" if it can. `max_tasks`: of a streams
    group."""
    if group.kind == CONSUMER and any(m.classic for m in group.members):
        return "it is a consumer group with members of the classic protocol; wait until it is one or the other"
    if group.kind == STREAMS and group.members and group.topology is None:
        return "it is a streams group without a topology"
    active = (t for m in group.members if m.streams is not None for t in m.streams.assignment.active_tasks)
    if (tasks := sum(len(t.partitions) for t in active)) > max_tasks:
        return f"it is a streams group of {tasks} tasks, and may have {max_tasks} at most"
    return ""


def topic_names(group: Native) -> list[str]:
    """Returns the topics that must be known here before a streams group that is ready at the broker is taken in:
    without them it would not be ready here, and its members would give up their tasks."""
    ready = group.kind == STREAMS and group.topology is not None and group.state == "Stable"
    return _topology(group.topology).required_topics() if ready else []


def adoption_event(group_id: str, group: Native, why: str) -> Event:
    if group.kind == CLASSIC:
        natives = tuple(
            NativeMember(m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata, m.assignment)
            for m in group.members
        )
        timeouts = (SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        return AdoptClassic(group_id, group.protocol_type, group.protocol, natives, *timeouts, why)
    if group.kind == SHARE:
        return _share(group_id, group, why)
    if group.kind == STREAMS:
        return _streams(group_id, group, why)
    members = tuple(
        NativeConsumer(
            m.member_id, m.instance_id, m.rack_id, m.client_id, m.client_host, m.names, m.regex or "", m.owned
        )
        for m in group.members
    )
    return AdoptConsumer(group_id, group.epoch, group.assignor, members, group.topics, REBALANCE_TIMEOUT_MS, why)


def _share(group_id: str, group: Native, why: str) -> AdoptShare:
    members = tuple(
        NativeShareMember(m.member_id, m.rack_id, m.epoch, m.client_id, m.client_host, m.names, m.owned)
        for m in group.members
    )
    return AdoptShare(group_id, group.epoch, group.assignment_epoch, group.assignor, members, group.topics, why)


def _streams(group_id: str, group: Native, why: str) -> AdoptStreams:
    return AdoptStreams(
        group_id,
        group.epoch,
        group.assignment_epoch,
        group.assignor,
        _topology(group.topology),
        tuple(map(_streams_member, group.members)),
        REBALANCE_TIMEOUT_MS,
        why,
    )


def _streams_member(m: Member) -> NativeStreamsMember:
    streams = m.streams
    assert streams is not None
    return NativeStreamsMember(
        m.member_id,
        m.instance_id,
        streams.rack_id,
        m.epoch,
        m.client_id,
        m.client_host,
        streams.topology_epoch,
        streams.process_id,
        None if streams.user_endpoint is None else (streams.user_endpoint.host, streams.user_endpoint.port),
        tuple((t.key, t.value) for t in streams.client_tags),
        tasks(streams.assignment),
    )


def _topology(topology: td.Topology | None) -> Topology:
    """Returns the topology without copartition groups, which StreamsGroupDescribe does not have."""
    assert topology is not None
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                s.subtopology_id,
                tuple(s.source_topics),
                tuple(s.repartition_sink_topics),
                tuple(map(_topic, s.repartition_source_topics)),
                tuple(map(_topic, s.state_changelog_topics)),
            )
            for s in topology.subtopologies or ()
        ),
    )


def _topic(t: td.TopicInfo) -> TopicInfo:
    return TopicInfo(t.name, t.partitions, t.replication_factor, tuple((c.key, c.value) for c in t.topic_configs))
