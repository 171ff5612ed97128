"""StreamsGroupDescribe (api 89, KIP-1071): a group as its members and operators see it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import config_of
from sidecar.core.streams.configure import configured_now
from sidecar.core.streams.events import (
    DescribedStreamsMember,
    DescribeStreamsGroup,
    StreamsDescribeReply,
    TaskOffset,
)
from sidecar.core.streams.group import Member, StreamsGroup, streams_group
from sidecar.core.streams.java_order import compare_order
from sidecar.core.streams.partitions import ConfiguredSubtopology, InternalTopic
from sidecar.core.streams.soft_state import Offsets, StreamsSoft
from sidecar.core.streams.target_assignment import preferred
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def describe(turn: Turn, event: DescribeStreamsGroup, token: int) -> None:
    group = streams_group(turn.groups, event.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
    soft: StreamsSoft = turn.soft_of(group.group_id)
    turn.reply(
        token,
        StreamsDescribeReply(
            state=group.state_name(),
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=preferred(group, config_of(turn, group.group_id)),
            topology=None if group.topology is None else _topology(turn, group, group.topology),
            members=tuple(_member(m, group, *soft.offsets.get(m.member_id, ({}, {}))) for m in group.members.values()),
        ),
    )


def _topology(turn: Turn, group: StreamsGroup, topology: Topology) -> Topology:
    """Returns the topology with subtopologies and their topics sorted; with the computed numbers of partitions, if it
    is ready. Kafka describes no copartition groups."""
    configured = configured_now(turn, group)
    ready = configured.subtopologies if configured.ready else {}
    in_order = sorted(topology.subtopologies, key=lambda s: compare_order(s.subtopology_id))
    return Topology(topology.epoch, tuple(_subtopology(s, ready.get(s.subtopology_id)) for s in in_order))


def _subtopology(s: Subtopology, configured: ConfiguredSubtopology | None) -> Subtopology:
    counts = {} if configured is None else {t.name: t for t in configured.internal_topics()}
    return replace(
        s,
        source_topics=tuple(sorted(s.source_topics)),
        repartition_sink_topics=tuple(sorted(s.repartition_sink_topics)),
        repartition_source_topics=_topics(s.repartition_source_topics, counts),
        changelog_topics=_topics(s.changelog_topics, counts),
        copartition_groups=(),
    )


def _topics(topics: Iterable[TopicInfo], counts: dict[str, InternalTopic]) -> tuple[TopicInfo, ...]:
    counted = (replace(t, partitions=counts[t.name].partitions) if t.name in counts else t for t in topics)
    return tuple(sorted(counted, key=lambda t: t.name))


def _member(m: Member, group: StreamsGroup, offsets: Offsets, end_offsets: Offsets) -> DescribedStreamsMember:
    return DescribedStreamsMember(
        member_id=m.member_id,
        member_epoch=m.member_epoch,
        instance_id=m.instance_id,
        rack_id=m.rack_id,
        client_id=m.client_id,
        client_host=m.client_host,
        topology_epoch=m.topology_epoch,
        process_id=m.process_id,
        endpoint=m.endpoint,
        client_tags=tuple(m.client_tags.items()),
        assignment=m.assigned.without_epochs(),
        target=group.target_of(m.member_id),
        offsets=_offsets(offsets),
        end_offsets=_offsets(end_offsets),
    )


def _offsets(by_task: Offsets) -> tuple[TaskOffset, ...]:
    return tuple((s, p, offset) for s in sorted(by_task, key=compare_order) for p, offset in sorted(by_task[s].items()))
