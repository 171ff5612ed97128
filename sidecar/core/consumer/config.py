"""The settings of one consumer group as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.modern.config import ModernConfig
from sidecar.core.runtime.turn import Turn

CONSUMER = "consumer"
"""The name of this kind of group, as ListGroups and the settings spell it."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig(ModernConfig):
    """Kafka's names with dots as underscores; docs/reference/behaviour.md has defaults and ranges."""

    assignors: tuple[str, ...] = ("uniform", "range")
    regex_refresh_interval_ms: int = 600_000
    regex_min_interval_ms: int = 10_000
    migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: which protocol a live group may change to: disabled, upgrade (to the consumer
    protocol), downgrade, bidirectional."""
    regex_matches: int = 3
    """Most matches of a group's expressions against new topics within `regex_min_interval_ms`; in Kafka once."""
    regexes_max: int = 100
    """Most different regular expressions of a group."""
    refuse_commits_of_others: bool = True
    """Refuses a commit for a partition that another member owns, though the committing member is in the present epoch.
    Kafka accepts it."""


def config_of(turn: Turn, group_id: str) -> ConsumerConfig:
    config = turn.ports.config[(CONSUMER, group_id)]
    assert isinstance(config, ConsumerConfig)
    return config
