"""The interface of assignors. Source: KIP-848 'Assignors', group-coordinator-api PartitionAssignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecar.core.records import Partitions


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it. `topic_ids` exist, all of them; `owned` is its last target."""

    rack_id: str | None
    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    owned: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`members` in the group's order, `partitions`: topic id -> count, `homogeneous`: one subscription for all."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    homogeneous: bool


class AssignorError(Exception):
    """The assignor cannot do it; the group keeps its last target."""


class Assignor(Protocol):
    """Returns member id -> topic id -> sorted partitions. Deterministic: same spec, same result."""

    def __call__(self, spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]: ...
