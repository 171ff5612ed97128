"""The settings of one share group as the coordinator uses them. Settings for the leader of a partition, such as
share.record.lock.duration.ms, are the broker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.core.modern.config import ModernConfig

if TYPE_CHECKING:
    from sidecar.core.runtime.turn import Turn

SHARE = "share"
"""The name of this kind of group, as ListGroups and the settings spell it."""


@dataclass(frozen=True, slots=True)
class ShareConfig(ModernConfig):
    """Kafka's group.share. settings; RANGES has the ranges."""

    max_size: int = 200
    assignors: tuple[str, ...] = ("simple",)


RANGES = {
    "session_timeout_ms": (45_000, 60_000),
    "heartbeat_interval_ms": (5_000, 15_000),
    "max_size": (1, 1_000),
    "assignment_interval_ms": (0, 15_000),
}
"""Ranges of the broker-level settings (Kafka 4.4). A group's own session timeout, heartbeat interval and assignment
interval lie within the broker's group.share.min. and group.share.max. settings, which have these defaults."""


def config_of(turn: Turn, group_id: str) -> ShareConfig:
    """Returns the settings in force for this group, which need not exist yet."""
    config = turn.ports.config[(SHARE, group_id)]
    assert isinstance(config, ShareConfig)
    return config
