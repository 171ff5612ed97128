"""Computes the partition counts of a topology's internal topics, its number of tasks, and its missing topics.

Source: Kafka's InternalTopicManager, RepartitionTopics, ChangelogTopics and CopartitionedTopicsEnforcer. A topic that
exists counts with its real partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.java_order import compare_order, hash_order
from sidecar.core.streams.status_texts import (
    Status,
    incorrectly_partitioned,
    missing_internal_topics,
    missing_source_topics,
)
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology, invalid

PartitionsOf = Callable[[str], int | None]
"""Topic -> its number of partitions; None: it does not exist."""
DEFAULT_REPLICATION = -1


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic with its computed number of partitions. `replication_factor` 0: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]

    def new(self) -> NewTopic:
        return NewTopic(self.name, self.partitions, self.replication_factor or DEFAULT_REPLICATION, self.configs)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    tasks: int
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    changelog_topics: tuple[InternalTopic, ...]

    def internal_topics(self) -> Iterable[InternalTopic]:
        """Yields the internal topics in Kafka's order."""
        for topics in (self.repartition_source_topics, self.changelog_topics):
            by_name = {t.name: t for t in topics}
            yield from map(by_name.__getitem__, hash_order(by_name))


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with its numbers of tasks. `status`: the reason why it is not ready. Subtopologies by id, in order;
    empty while their numbers of tasks are unknown."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    to_create: Mapping[str, NewTopic] = field(default_factory=dict)
    status: Status | None = None

    @property
    def ready(self) -> bool:
        return self.status is None


class _NotReady(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.detail)
        self.status = status


def configure(topology: Topology, partitions_of: PartitionsOf, max_tasks: int | None = None) -> ConfiguredTopology:
    """Computes partition counts and tasks of a topology that has passed `check_topology`. Raises
    STREAMS_INVALID_TOPOLOGY where Kafka fails the request and returns no status."""
    try:
        _check_sources(topology, partitions_of)
        decided = _decide(topology, partitions_of)
        by_id = topology.by_id()
        configured = {
            i: _configured(by_id[i], _partition_counts(partitions_of, decided), decided)
            for i in sorted(by_id, key=compare_order)
        }
        if max_tasks is not None:
            _check_size(configured.values(), max_tasks)
        to_create = _to_create(topology, configured, partitions_of)
    except _NotReady as exc:
        return ConfiguredTopology(topology.epoch, status=exc.status)
    status = missing_internal_topics(to_create) if to_create else None
    return ConfiguredTopology(topology.epoch, configured, to_create, status)


def _check_size(subtopologies: Iterable[ConfiguredSubtopology], max_tasks: int) -> None:
    """Refuses a topology with too many tasks. Clients choose how many subtopologies read a topic, so that a request of
    100 KB makes millions of tasks: their records fit into no batch, and reconciling a member takes seconds."""
    if (tasks := sum(s.tasks for s in subtopologies)) > max_tasks:
        raise invalid(f"The topology has {tasks} tasks, and a group may have {max_tasks} at most.")


def _check_sources(topology: Topology, partitions_of: PartitionsOf) -> None:
    missing = {t for s in topology.subtopologies for t in s.source_topics if partitions_of(t) is None}
    if missing:
        raise _NotReady(missing_source_topics(missing))


def _partition_counts(partitions_of: PartitionsOf, decided: Mapping[str, int]) -> Callable[[str], int]:
    """Returns a function: topic -> partitions, the real ones first, then the decided ones."""

    def known(topic: str) -> int:
        real = partitions_of(topic)
        return decided[topic] if real is None else real

    return known


def _decide(topology: Topology, partitions_of: PartitionsOf) -> dict[str, int]:
    """Returns the partitions of every internal topic."""
    subtopologies = topology.in_java_order()
    decided = repartition_counts(subtopologies, partitions_of)
    known = _partition_counts(partitions_of, decided)
    internal = _InternalTopics(subtopologies, known)
    for s in subtopologies:
        for topics in s.copartitioned():
            decided.update(_copartition(hash_order(topics), internal, known))
    decided.update(_changelog_counts(subtopologies, known))
    return decided


def repartition_counts(subtopologies: Iterable[Subtopology], partitions_of: PartitionsOf) -> dict[str, int]:
    """Returns partitions of repartition topics: the fixed number, or the largest among the sources of the subtopology
    that writes to it. Only sources whose number is known at its turn count, so the order matters.

    Kafka passes over all subtopologies until nothing is left. Here each has its turn once, in the pass and at the place
    at which Kafka would know the first of its sources: a chain against the order would take as many passes as it has
    links."""
    order = list(subtopologies)
    counts = {t.name: t.partitions for s in order for t in s.repartition_source_topics if t.partitions}
    readers: dict[str, list[int]] = {}
    turns: list[tuple[int, int]] = []
    """Pass and place of subtopologies that know a source."""
    for place, s in enumerate(order):
        for t in s.repartition_source_topics:
            readers.setdefault(t.name, []).append(place)
        if _largest_source(s, counts, partitions_of) is not None:
            turns.append((0, place))
    waiting = set(range(len(order))).difference(place for _, place in turns)
    while turns:
        number, place = heappop(turns)
        s = order[place]
        count = _largest_source(s, counts, partitions_of)
        for sink in s.repartition_sink_topics:
            if sink in counts or count is None:
                continue
            counts[sink] = count
            for reader in readers.get(sink, ()):
                if reader in waiting:
                    waiting.remove(reader)
                    heappush(turns, (number + (reader < place), reader))
    if any(sink not in counts for s in order for sink in s.repartition_sink_topics):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved."
        )
    if any(t.name not in counts for s in order for t in s.repartition_source_topics):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic."
        )
    return counts


def _largest_source(s: Subtopology, counts: Mapping[str, int], partitions_of: PartitionsOf) -> int | None:
    repartition = (counts.get(t.name) for t in s.repartition_source_topics)
    external = map(partitions_of, s.source_topics)
    return max((n for n in (*repartition, *external) if n is not None), default=None)


class _InternalTopics:
    """The repartition source topics of a topology: `fixed` ones have a number of their own. Kafka compares those of all
    copartition groups with each other."""

    def __init__(self, subtopologies: Iterable[Subtopology], known: Callable[[str], int]) -> None:
        topics = [t for s in subtopologies for t in s.repartition_source_topics]
        self.names = {t.name for t in topics}
        self.fixed = {t.name for t in topics if t.partitions}
        self.fixed_counts = set(map(known, self.fixed))


def _copartition(topics: list[str], internal: _InternalTopics, known: Callable[[str], int]) -> dict[str, int]:
    """Returns new counts of the repartition topics of one copartition group."""
    counts = {t: known(t) for t in hash_order(t for t in topics if t in internal.names)}
    external = {t: known(t) for t in topics if t not in counts}
    if not topics:
        return {}
    if external:
        wanted = _same(set(external.values()), external)
    elif internal.fixed:
        wanted = _same(internal.fixed_counts, counts)
    else:
        wanted = max(counts.values())
    for topic, count in counts.items():
        if topic in internal.fixed and count != wanted:
            raise _NotReady(
                incorrectly_partitioned(
                    f"Number of partitions [{count}] of repartition topic [{topic}] doesn't match number of "
                    f"partitions [{wanted}] of the source topic."
                )
            )
    return dict.fromkeys(counts, wanted)


def _same(values: Collection[int], shown: Mapping[str, int]) -> int:
    if len(values) > 1:
        pairs = ", ".join(f"{t}={n}" for t, n in sorted(shown.items()))
        raise _NotReady(
            incorrectly_partitioned(f"Following topics do not have the same number of partitions: [{{{pairs}}}]")
        )
    (value,) = values
    return value


def _changelog_counts(subtopologies: Iterable[Subtopology], known: Callable[[str], int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for s in subtopologies:
        largest = max(map(known, s.task_topics()), default=None)
        if largest is None:
            raise invalid(f"No source topics found for subtopology {s.subtopology_id}")
        counts.update(dict.fromkeys((t.name for t in s.changelog_topics), largest))
    return counts


def _configured(s: Subtopology, known: Callable[[str], int], decided: Mapping[str, int]) -> ConfiguredSubtopology:
    def internal(t: TopicInfo) -> InternalTopic:
        return InternalTopic(t.name, t.partitions or decided[t.name], t.replication_factor, t.configs)

    return ConfiguredSubtopology(
        max(map(known, s.task_topics())),
        s.source_topics,
        tuple(map(internal, s.repartition_source_topics)),
        s.repartition_sink_topics,
        tuple(map(internal, s.changelog_topics)),
    )


def _to_create(
    topology: Topology, configured: Mapping[str, ConfiguredSubtopology], partitions_of: PartitionsOf
) -> dict[str, NewTopic]:
    """Returns the internal topics that do not exist, in Kafka's order."""
    wanted = {t.name: t.new() for s in configured.values() for t in s.internal_topics()}
    order = hash_order(wanted)
    for topic in topology.required_topics():
        real = partitions_of(topic)
        if real is None or (expected := wanted.pop(topic, None)) is None:
            continue
        if real != expected.partitions:
            raise _NotReady(
                incorrectly_partitioned(
                    f"Existing topic {topic} has different number of partitions: expected {expected.partitions}, "
                    f"found {real}"
                )
            )
    return {name: wanted[name] for name in order if name in wanted}
