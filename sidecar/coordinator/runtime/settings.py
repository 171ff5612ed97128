"""The settings of a coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.coordinator.moves.moves import MoveSettings
from sidecar.coordinator.placeholder.placeholders import PlaceholderSettings
from sidecar.coordinator.statelog.fenced_writer import BATCH_BYTES
from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.kafka.cluster import Address


@dataclass(frozen=True)
class CoordinatorSettings:
    topic: str
    node_id: int
    address: Address
    write_timeout_s: float
    claims_kept: int
    service: ServiceSettings
    placeholders: PlaceholderSettings = PlaceholderSettings()
    moves: MoveSettings = MoveSettings()
    lease_ms: int = 15_000
    """Time for which a committed write proves its owner."""
    batch_bytes: int = BATCH_BYTES
    load_slice_s: float = 0.005
    quarantine: Quarantine = Quarantine()
    limits: MemberLimits = MemberLimits()
    turns: bool = False
    """Whether every turn is logged (turn_log.py)."""
    look_s: float = 0.1
    """Least time between two looks at topics (topic_refresh.py)."""
    cluster_id: str | None = None
    """The cluster's id, by this sidecar's broker; None if the broker does not name one."""
