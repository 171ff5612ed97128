"""Partitions by member endpoint, for Interactive Queries: sent to members whose endpoint epoch is behind."""

from __future__ import annotations

from collections.abc import Collection

from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.events import EndpointPartitions
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.tasks import Partitions, merged
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.topics import TopicImage


def partitions_by_endpoint(turn: Turn, group: StreamsGroup, member: Member) -> tuple[EndpointPartitions, ...]:
    """Returns one entry for each member with an endpoint, `member` last. Unlike Kafka, which fails there, a source
    topic that is missing has no partitions."""
    others = [m for m in group.members.values() if m.member_id != member.member_id]
    return tuple(_entry(turn, group, m) for m in (*others, member) if m.endpoint is not None)


def _entry(turn: Turn, group: StreamsGroup, m: Member) -> EndpointPartitions:
    soft: StreamsSoft = turn.soft_of(group.group_id)
    soft.endpoints_incomplete |= _misses_topic(m, group, turn.image)
    metadata_hash, known = group.hash_over(turn.image), soft.endpoints.get(m.member_id)
    assert m.endpoint is not None
    if known is not None and known[0] is m.assigned and known[1] == metadata_hash and known[2][0] == m.endpoint:
        return known[2]
    topology = group.topology or Topology(0)
    has = m.assigned.without_epochs()
    replicas = merged([*has.standby.items(), *has.warmup.items()])
    entry = (m.endpoint, _topics(has.active, topology, turn.image), _topics(replicas, topology, turn.image))
    soft.endpoints[m.member_id] = (m.assigned, metadata_hash, entry)
    return entry


def _misses_topic(m: Member, group: StreamsGroup, image: TopicImage) -> bool:
    """Whether a topic that the member's tasks read is missing."""
    held = m.assigned.active.keys() | m.assigned.standby.keys() | m.assigned.warmup.keys()
    topics = group.subtopology_of_topic.items()
    return bool(held) and any(s in held and topic not in image.by_name for topic, s in topics)


def _topics(tasks: Partitions, topology: Topology, image: TopicImage) -> Partitions:
    """Returns partition p of each topic that task p reads, if it exists."""
    subtopologies, by_topic = topology.by_id(), dict[str, tuple[int, ...]]()
    for subtopology_id, ps in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.task_topics():
            if existing := _existing(name, ps, image):
                by_topic[name] = existing
    return by_topic


def _existing(name: str, ps: Collection[int], image: TopicImage) -> tuple[int, ...]:
    topic = image.by_name.get(name)
    return () if topic is None else tuple(p for p in ps if p < topic.partitions)
