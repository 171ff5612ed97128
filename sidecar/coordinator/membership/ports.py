"""The ports of owners_group.py: its settings, and the listener that it calls."""

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
    """The topic of the commits that prove the lease: any topic that exists."""
    front_within: bool = True
    """Whether the front is in this process."""
    rebalance_wait_ms: int = 30_000
    """Longest time that rebalances of its groups keep a partition with its owner."""
    kinds: tuple[str, ...] = KINDS_BEFORE
    """The kinds of groups that this sidecar coordinates."""
    version: str = ""
    """The version of this sidecar's package, for people."""


class OwnersListener(Protocol):
    """Listener for changes of ownership, and the facts that decide the placement."""

    def owners_assigned(self, a: Assignment, missed: bool = False) -> None:
        """Called with each new owner map. `missed`: there may have been another one since the last, by which another
        sidecar took over what this one serves. The new generation extends the lease only after this call."""

    def owners_lost(self, why: str) -> None:
        """Called when this sidecar is no member of the owners' group any more."""

    def lease_proved(self, until: Now) -> None:
        """Called with the new end of the lease when the brokers have answered as they answer a live member."""

    def peers_suspected(self, nodes: frozenset[int]) -> None:
        """Called with the nodes that may be gone. A new owner map follows, or another call without them."""

    def topics_changed(self) -> None:
        """Called when a peer reports that topics were changed through it a moment ago."""

    def offsets_leaders(self) -> Sequence[int]:
        """Returns the leader of each partition of `__consumer_offsets`, as known now."""

    def new_leaders(self) -> Set[int]:
        """Returns the partitions of `__consumer_offsets` whose leaders must not be followed yet: the leader is new, or
        the sidecar beside it is."""

    def barriers(self) -> Set[int]:
        """Returns the partitions served here with groups whose members wait for one another."""
