"""Soft state of a streams group. A takeover loses all of it."""

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
    """The last configured topology, the hash of its topics then, and the result."""
    creations: TopicCreations = field(default_factory=TopicCreations)
    offsets: dict[str, tuple[Offsets, Offsets]] = field(default_factory=dict)
    """By member id: offsets and end offsets of the tasks whose state the member has; hints for the assignor."""
    endpoints: dict[str, tuple[AssignedTasks, int, EndpointPartitions]] = field(default_factory=dict)
    """By member id: the member's tasks, the hash of the topics, and the endpoint entry made from them."""
    whole_asked_until_ms: int = 0
    """Monotonic time before which no other member is asked for the whole topology; one was asked already."""
    tasks_received_by: set[str] = field(default_factory=set)
    """Members that have received their tasks from this owner, or have reported to have them."""
    endpoints_incomplete: bool = False
    """Whether an endpoint entry may have been sent while one of its topics was missing: the next epoch sends all
    entries again."""
