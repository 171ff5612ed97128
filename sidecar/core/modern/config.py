"""The settings that every kind of group with epochs has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.core.modern.group import ModernGroup
    from sidecar.core.runtime.turn import Turn


@dataclass(frozen=True, slots=True)
class ModernConfig:
    """Settings under Kafka's names without the kind's prefix, with dots as underscores. A kind adds its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ()
    assignment_interval_ms: int = 1_000
    assignor_offload_enable: bool = True
    assignor_timeout_ms: int = 30_000
    join_wait_ms: int = 500
    """Longest wait of the answer to a join or a heartbeat for the assignor run under way; 0: no wait, as in
    KIP-1263."""


def config_of(turn: Turn, group: ModernGroup[Any]) -> ModernConfig:
    """Returns the settings in force for this group, by its kind."""
    config = turn.ports.config[(group.kind, group.group_id)]
    assert isinstance(config, ModernConfig)
    return config
