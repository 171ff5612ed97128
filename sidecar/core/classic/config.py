"""The settings of classic groups as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sidecar.core.runtime.turn import Turn

CLASSIC = "classic"
"""The name of this kind of group, as ListGroups spells it."""


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """Kafka's names without `group.`, dots as underscores; docs/reference/behaviour.md has the ranges."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000
    """A new member whose JoinGroup waits longer is removed; a constant in Kafka."""
    stale_claims: Literal["report", "strip"] = "report"
    """Treatment of stale claims of partitions (KIP-792): `report` logs and records them, `strip` also removes them from
    the metadata that the leader gets."""


def config_of(turn: Turn, group_id: str) -> ClassicConfig:
    config = turn.ports.config[(CLASSIC, group_id)]
    assert isinstance(config, ClassicConfig)
    return config
