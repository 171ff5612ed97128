"""Partitions by member endpoint, for Interactive Queries: sent to members whose endpoint epoch is behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.events import EndpointPartitions
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.tasks import Partitions, merged
from sidecar.core.streams.topology import Subtopology, Topology
from sidecar.core.vocabulary.topics import TopicImage


def partitions_by_endpoint(turn: Turn, group: StreamsGroup, member: Member) -> tuple[EndpointPartitions, ...]:
    """Returns one entry for each member with an endpoint, `member` last. Unlike Kafka, which fails there, a source
    topic that is missing has no partitions."""
    others = [m for m in group.members.values() if m.member_id != member.member_id]
    shown = [m for m in (*others, member) if m.endpoint is not None]
    lacking = {s for topic, s in group.subtopology_of_topic.items() if topic not in turn.image.by_name}
    soft: StreamsSoft = turn.soft_of(group.group_id)
    soft.endpoints_incomplete |= any(_has_tasks(m, lacking) for m in shown)
    subtopologies = (group.topology or Topology(0)).by_id()
    return tuple(_entry(turn, group, m, subtopologies) for m in shown)


def _entry(turn: Turn, group: StreamsGroup, m: Member, subtopologies: Mapping[str, Subtopology]) -> EndpointPartitions:
    soft: StreamsSoft = turn.soft_of(group.group_id)
    metadata_hash, known = group.hash_over(turn.image), soft.endpoints.get(m.member_id)
    assert m.endpoint is not None
    if known is not None and known[0] is m.assigned and known[1] == metadata_hash and known[2][0] == m.endpoint:
        return known[2]
    has = m.assigned.without_epochs()
    replicas = merged([*has.standby.items(), *has.warmup.items()])
    image = turn.image
    entry = (m.endpoint, _topics(has.active, subtopologies, image), _topics(replicas, subtopologies, image))
    soft.endpoints[m.member_id] = (m.assigned, metadata_hash, entry)
    return entry


def _has_tasks(m: Member, subtopologies: Set[str]) -> bool:
    """Whether the member has a task of any of these subtopologies."""
    roles = (m.assigned.active, m.assigned.standby, m.assigned.warmup)
    return any(not subtopologies.isdisjoint(role) for role in roles)


def _topics(tasks: Partitions, subtopologies: Mapping[str, Subtopology], image: TopicImage) -> Partitions:
    """Returns partition p of each topic that task p reads, if it exists. Of several subtopologies that read a topic the
    last one counts, and each topic is looked at once: its partitions may be many, and a client may name it often."""
    by_topic: dict[str, tuple[int, ...]] = {}
    for subtopology_id, ps in reversed([*tasks.items()]):
        subtopology = subtopologies.get(subtopology_id)
        for name in () if subtopology is None else dict.fromkeys(subtopology.task_topics()):
            if name not in by_topic and (existing := _existing(name, ps, image)):
                by_topic[name] = existing
    return by_topic


def _existing(name: str, ps: Collection[int], image: TopicImage) -> tuple[int, ...]:
    topic = image.by_name.get(name)
    return () if topic is None else tuple(p for p in ps if p < topic.partitions)
