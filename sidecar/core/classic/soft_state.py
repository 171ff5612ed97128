"""What a coordinator knows of a classic group beside its records: who waits for an answer, who was given a member id,
who has not synced. All of it is lost at a takeover: members whose request was under way ask the next coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.runtime.turn import Soft


@dataclass(slots=True)
class ClassicSoft(Soft):
    joins: dict[str, int] = field(default_factory=dict)
    """Member id -> token of its waiting JoinGroup, in the order in which they came."""
    syncs: dict[str, int] = field(default_factory=dict)
    """Member id -> token of its waiting SyncGroup."""
    pending: set[str] = field(default_factory=set)
    """Member ids that were given out and have not come back yet (KIP-394)."""
    new: set[str] = field(default_factory=set)
    """Members in their first join phase: their session does not wait for its end."""
    unsynced: set[str] = field(default_factory=set)
    """Members of the last generation that have sent no SyncGroup in it."""
    initial: bool = False
    """The rebalance under way is the first one of an empty group."""
    grew: bool = False
    """A member came in the initial rebalance since its delay was last extended."""
    nobody: bool = False
    """Nobody came within the time of the rebalance under way, and it was said so."""
    releasing: bool = False
    """The group goes back to the broker."""
    rounds: int = 0
    """Generations in which nobody was assigned anything for that reason."""
    delay_ms: int = 0
    left_ms: int = 0
    """Of the initial rebalance: the delay that runs, and how much more of it there may be."""
