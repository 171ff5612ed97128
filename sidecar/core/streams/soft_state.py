"""What a coordinator knows of a streams group beside its records. All of it is lost at a takeover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.streams.events import EndpointPartitions
from sidecar.core.streams.internal_topics import TopicCreations
from sidecar.core.streams.partitions import ConfiguredTopology
from sidecar.core.streams.tasks import AssignedTasks
from sidecar.core.streams.topology import Topology

Offsets = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> offset."""


@dataclass(slots=True)
class StreamsSoft(ModernSoft):
    configured: tuple[Topology, int, ConfiguredTopology] | None = None
    """The topology that was configured last, the hash of its topics then, and what came of it."""
    creations: TopicCreations = field(default_factory=TopicCreations)
    offsets: dict[str, tuple[Offsets, Offsets]] = field(default_factory=dict)
    """By member id: offsets and end offsets of the tasks whose state it has; hints for the assignor."""
    endpoints: dict[str, tuple[AssignedTasks, int, EndpointPartitions]] = field(default_factory=dict)
    """By member id: what it had when its entry was made, and the hash of the topics then."""
    whole_asked_until_ms: int = 0
    """Monotonic: one member was asked for the whole topology, and no other is before then."""
    heard: set[str] = field(default_factory=set)
    """Members that this owner has told their tasks, or that have said that they have them."""
    endpoints_lack: bool = False
    """An entry may have been told while a topic of it was missing: the next epoch tells all of them again."""
