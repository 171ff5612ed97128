"""The metadata of the cluster as the controller keeps it and as each broker knows it, sooner or later. Never changed in
place: a change makes a new image, so a broker may hold an old one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Partition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    version: int = 0
    """Kafka's partition epoch: counts every change."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): they have everything that was committed, but are not in the ISR."""
    last_known: int = -1


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]


BROKER, TOPIC, GROUP = 4, 2, 32
"""Types of resources that have settings."""
Resource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Image:
    version: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    alive: frozenset[int] = frozenset()
    """Brokers that are registered and not fenced."""
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None
