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
    """Kafka's group.share. settings."""

    max_size: int = 200
    assignors: tuple[str, ...] = ("simple",)


def config_of(turn: Turn, group_id: str) -> ShareConfig:
    """Returns the settings in force for this group, which need not exist yet."""
    config = turn.ports.config[(SHARE, group_id)]
    assert isinstance(config, ShareConfig)
    return config
