"""The topology of a streams application as its members send it, and its comparison with the group's (KIP-1071).

Source: Kafka's StreamsTopology and GroupMetadataManager.maybeUpdateTopology.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.streams.java_order import hash_order
from sidecar.core.vocabulary.errors import Code, CoordinatorError

Body = Mapping[str, Any]


class TopicInfo(Struct, frozen=True, gc=False):
    """A repartition or changelog topic. `partitions` 0: the coordinator computes the number; `replication_factor` 0:
    the broker's default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(Struct, frozen=True, gc=False):
    """Topics of one subtopology that need equal numbers of partitions, by their index in its lists."""

    source_topics: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(Struct, frozen=True, gc=False):
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    changelog_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    """Always empty in a topology that a group has: Kafka supports none yet."""

    def task_topics(self) -> Iterator[str]:
        """Yields the topics whose partitions make its tasks."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    def copartitioned(self) -> list[list[str]]:
        """Returns the topics of each copartition group. Raises IndexError for a topology that `check_topology`
        refuses."""
        return [
            [self.source_topics[i] for i in group.source_topics]
            + [self.repartition_source_topics[i].name for i in group.repartition_source_topics]
            for group in self.copartition_groups
        ]


class Topology(Struct, frozen=True, gc=False):
    """A streams application's topology. `subtopologies` are in the order of the member that sent it; the order has no
    meaning."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def by_id(self) -> dict[str, Subtopology]:
        return {s.subtopology_id: s for s in self.subtopologies}

    def in_java_order(self) -> list[Subtopology]:
        """Returns the subtopologies in the order in which Kafka walks through them."""
        by_id = self.by_id()
        return [by_id[i] for i in hash_order(s.subtopology_id for s in self.subtopologies)]

    def required_topics(self) -> list[str]:
        """Returns the topics that the metadata hash covers, in Kafka's order: sources, repartition sources and
        changelogs."""
        names: list[str] = []
        for s in self.in_java_order():
            names += s.task_topics()
            names += [t.name for t in s.changelog_topics]
        return hash_order(names)

    def subtopology_of_topic(self) -> dict[str, str]:
        """Returns source or repartition source topic -> the id of its subtopology; of two, the last in Kafka's
        order."""
        return {topic: s.subtopology_id for s in self.in_java_order() for topic in s.task_topics()}

    def all_topics(self) -> list[str]:
        """Returns every topic that the topology names, in the order in which Kafka authorises them."""
        return list(
            dict.fromkeys(
                name
                for s in self.subtopologies
                for name in (
                    *s.source_topics,
                    *s.repartition_sink_topics,
                    *(t.name for t in s.repartition_source_topics),
                    *(t.name for t in s.changelog_topics),
                )
            )
        )

    def texts(self) -> Iterator[str]:
        """Yields every text of the topology, a name as often as it stands there."""
        for s in self.subtopologies:
            yield s.subtopology_id
            yield from s.source_topics
            yield from s.repartition_sink_topics
            for t in (*s.repartition_source_topics, *s.changelog_topics):
                yield t.name
                for pair in t.configs:
                    yield from pair

    def indices(self) -> int:
        """Returns the number of topics in all copartition groups, with one more for each group."""
        groups = [g for s in self.subtopologies for g in s.copartition_groups]
        return sum(1 + len(g.source_topics) + len(g.repartition_source_topics) for g in groups)


class Comparison(Enum):
    """Result of comparing a joining member's topology with the group's."""

    FIRST = "first"
    """The group has no topology: the given one becomes the group's."""
    SAME = "same"
    COMPLETES = "completes"
    """The group's topology lacks copartition groups, as StreamsGroupDescribe has none: the given one replaces it."""
    STALE = "stale"
    """The given topology has a lower epoch: the group's stays, and the member gets a status."""


def compare(current: Topology | None, given: Topology, partial: bool = False) -> Comparison:
    """Compares a joining member's topology with the group's. Raises INVALID_REQUEST for an update, even if only the
    epoch is greater. `partial`: the group's lacks copartition groups."""
    if current is None:
        return Comparison.FIRST
    if given.epoch < current.epoch:
        return Comparison.STALE
    if given.epoch == current.epoch:
        if given.by_id() == current.by_id():
            return Comparison.COMPLETES if partial else Comparison.SAME
        if partial and _without_copartition_groups(given) == _without_copartition_groups(current):
            return Comparison.COMPLETES
    raise CoordinatorError(Code.INVALID_REQUEST, "Topology updates are not supported yet.")


def _without_copartition_groups(topology: Topology) -> dict[str, tuple[object, ...]]:
    """Returns the parts that a topology has in common with its description: StreamsGroupDescribe sorts the lists and
    has the computed numbers of partitions."""
    return {
        s.subtopology_id: (
            frozenset(s.source_topics),
            frozenset(s.repartition_sink_topics),
            frozenset(map(_as_described, s.repartition_source_topics)),
            frozenset(map(_as_described, s.changelog_topics)),
        )
        for s in topology.subtopologies
    }


def _as_described(t: TopicInfo) -> TopicInfo:
    return replace(t, partitions=0, configs=tuple(sorted(t.configs)))


def check_topology(topology: Topology) -> None:
    """Refuses topologies at which Kafka fails with UNKNOWN_SERVER_ERROR, which ends the client without a reason."""
    if topology.epoch < 0:
        raise CoordinatorError(Code.INVALID_REQUEST, "Topology epoch must be non-negative.")
    if duplicate := _first_twice([s.subtopology_id for s in topology.subtopologies]):
        raise invalid(f"Subtopology {duplicate} is given more than once.")
    for s in topology.subtopologies:
        for topics in (s.repartition_source_topics, s.changelog_topics):
            if duplicate := _first_twice([t.name for t in topics]):
                raise invalid(f"Topic {duplicate} is given more than once in subtopology {s.subtopology_id}.")
            for topic in topics:
                _check_internal_topic(topic)
        for group in s.copartition_groups:
            _check_indices(s, group.source_topics, len(s.source_topics))
            _check_indices(s, group.repartition_source_topics, len(s.repartition_source_topics))


def invalid(message: str) -> CoordinatorError:
    return CoordinatorError(Code.STREAMS_INVALID_TOPOLOGY, message)


def _check_internal_topic(topic: TopicInfo) -> None:
    if topic.partitions < 0:
        raise invalid(f"Number of partitions [{topic.partitions}] of topic [{topic.name}] must not be negative.")
    if duplicate := _first_twice([key for key, _ in topic.configs]):
        raise invalid(f"Config {duplicate} of topic {topic.name} is given more than once.")


def _check_indices(s: Subtopology, indices: tuple[int, ...], length: int) -> None:
    for i in indices:
        if not 0 <= i < length:
            raise invalid(f"A copartition group of subtopology {s.subtopology_id} has no topic with index {i}.")


def _first_twice(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def body_of(topology: Topology) -> dict[str, Any]:
    """Returns the fields of the topology's Avro schema."""
    return {"epoch": topology.epoch, "subtopologies": [_subtopology_body(s) for s in topology.subtopologies]}


def topology_of(body: Body) -> Topology:
    return Topology(body["epoch"], tuple(map(_subtopology_of, body["subtopologies"])))


def _subtopology_body(s: Subtopology) -> dict[str, Any]:
    return {
        "subtopology_id": s.subtopology_id,
        "source_topics": list(s.source_topics),
        "repartition_sink_topics": list(s.repartition_sink_topics),
        "repartition_source_topics": list(map(_topic_body, s.repartition_source_topics)),
        "changelog_topics": list(map(_topic_body, s.changelog_topics)),
        "copartition_groups": [
            {"source_topics": list(g.source_topics), "repartition_source_topics": list(g.repartition_source_topics)}
            for g in s.copartition_groups
        ],
    }


def _subtopology_of(b: Body) -> Subtopology:
    return Subtopology(
        b["subtopology_id"],
        tuple(b["source_topics"]),
        tuple(b["repartition_sink_topics"]),
        tuple(map(_topic_of, b["repartition_source_topics"])),
        tuple(map(_topic_of, b["changelog_topics"])),
        tuple(
            CopartitionGroup(tuple(g["source_topics"]), tuple(g["repartition_source_topics"]))
            for g in b["copartition_groups"]
        ),
    )


def _topic_body(t: TopicInfo) -> dict[str, Any]:
    configs = [{"key": key, "value": value} for key, value in t.configs]
    return {
        "name": t.name,
        "partitions": t.partitions,
        "replication_factor": t.replication_factor,
        "configs": configs,
    }


def _topic_of(b: Body) -> TopicInfo:
    configs = tuple((c["key"], c["value"]) for c in b["configs"])
    return TopicInfo(b["name"], b["partitions"], b["replication_factor"], configs)
