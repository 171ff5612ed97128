"""The interface of assignors: all that the author of a plug-in imports.

An assignor is a callable `GroupSpec -> member id -> topic id -> partitions`, found by the entry point group
`kafka_group_sidecar.assignors`; docs/design/assignors.md shows how to write one. The built-in assignors work on int
arrays instead (layout.py). Source: KIP-848 'Assignors', Kafka's PartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Partitions = Mapping[bytes, tuple[int, ...]]
"""Topic id (16 bytes) -> sorted partitions."""


def plain(mapping: Mapping[K, V]) -> dict[K, V]:
    """The mapping itself if it is a dict."""
    return mapping if isinstance(mapping, dict) else dict(mapping)


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it. Every one of `topic_ids` exists; `owned` is the member's last target."""

    rack_id: str | None
    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    owned: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The input of an assignor. `members` are in the order of their ids; `partitions` maps a topic id to its partition
    count; `homogeneous`: all members have one subscription; `racks` maps a topic id to the sorted racks of each
    partition."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    homogeneous: bool
    racks: Mapping[bytes, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


class AssignorError(Exception):
    """The assignor cannot compute an assignment. The group keeps its last target and the run is tried again."""


Result = Mapping[str, Mapping[bytes, Iterable[int]]]


class Assignor(Protocol):
    """Returns member id -> topic id -> partitions. Each partition occurs once at most, and only with a member that
    subscribes to its topic. It runs in a background thread: it must keep no state between calls and must give the
    same result for the same spec."""

    def __call__(self, spec: GroupSpec) -> Result: ...
