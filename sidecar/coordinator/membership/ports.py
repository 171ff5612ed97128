"""What owners_group.py is told, and whom it tells."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from sidecar.coordinator.membership.owners_protocol import KINDS_BEFORE, Assignment, OwnPatterns
from sidecar.coordinator.membership.peer_links import PeerSettings
from sidecar.core.runtime.turn import Now


@dataclass(frozen=True)
class OwnershipSettings:
    group_id: str
    session_timeout_ms: int
    heartbeat_ms: int
    peers: PeerSettings = PeerSettings()
    patterns: OwnPatterns = field(default_factory=dict)
    proof_ms: int = 15_000
    proof_topic: str = "__group_state"
    """What the offset is committed for: any topic that is there."""
    front_within: bool = True
    """The front is in this process."""
    rebalance_wait_ms: int = 30_000
    """So long at most a partition stays where it is because of rebalances of its groups."""
    kinds: tuple[str, ...] = KINDS_BEFORE
    """Of groups that this sidecar coordinates."""
    version: str = ""
    """Of this sidecar, for people."""


class OwnersListener(Protocol):
    """Who is told of ownership."""

    def owners_assigned(self, a: Assignment) -> None: ...

    def owners_lost(self, why: str) -> None:
        """This sidecar is no member of the owners' group any more."""

    def lease_proved(self, until: Now) -> None:
        """The brokers answered as to a live member; until when that counts."""

    def peers_suspected(self, nodes: frozenset[int]) -> None:
        """These may be gone; there will be a new assignment, or they are not."""

    def topics_changed(self) -> None:
        """A peer says so: they changed through it a moment ago."""

    def offsets_leaders(self) -> Sequence[int]:
        """Leader of each partition of `__consumer_offsets`, as known now."""

    def new_leaders(self) -> Set[int]:
        """Partitions of `__consumer_offsets` whose leaders are not to be followed yet: they are new, or the sidecars
        beside them are."""

    def barriers(self) -> Set[int]:
        """Partitions served here with groups whose members wait for one another."""
