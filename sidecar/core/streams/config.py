"""The settings of one streams group as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.core.modern.config import ModernConfig

if TYPE_CHECKING:
    from sidecar.core.runtime.turn import Turn

STREAMS = "streams"
"""The name of this kind of group, as ListGroups and the settings spell it."""


@dataclass(frozen=True, slots=True)
class StreamsConfig(ModernConfig):
    """Kafka's group.streams. settings."""

    assignors: tuple[str, ...] = ("sticky",)
    assignor_name: str = ""
    """streams.assignor.name of the group; "": the first of `assignors`."""
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    max_standby_replicas: int = 2
    rack_aware_assignment_tags: tuple[str, ...] = ()
    acceptable_recovery_lag: int = 10_000
    task_offset_interval_ms: int = 60_000
    max_tasks: int = 100_000
    """Active tasks of a group, over all members."""
    refuse_commits_of_others: bool = True
    """Refuses a commit for a task that is active at another member, though the committing member is in the present
    epoch. Kafka accepts it."""

    @property
    def standbys(self) -> int:
        return min(self.num_standby_replicas, self.max_standby_replicas)

    def assignment_configs(self) -> dict[str, str]:
        """Returns the settings that a target depends on beside members and topics, under Kafka's names."""
        return {
            "num.standby.replicas": str(self.standbys),
            "rack.aware.assignment.tags": ",".join(self.rack_aware_assignment_tags),
        }


def config_of(turn: Turn, group_id: str) -> StreamsConfig:
    """Returns the settings in force for this group, which need not exist yet."""
    config = turn.ports.config[(STREAMS, group_id)]
    assert isinstance(config, StreamsConfig)
    return config
