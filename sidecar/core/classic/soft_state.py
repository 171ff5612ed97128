"""Soft state of a classic group: waiting requests, member ids that were given out, members that have not synced. A
takeover loses all of it: members whose request was under way ask the next coordinator."""

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
    """Whether the rebalance under way is the first one of an empty group."""
    grew: bool = False
    """Whether a member joined the initial rebalance since its delay was last extended."""
    warned_of_no_joins: bool = False
    """Whether no member has joined within the time of the rebalance under way, and a warning was logged."""
    releasing: bool = False
    """Whether the group moves back to the broker."""
    rounds: int = 0
    """Generations of the release in which no partitions were assigned."""
    delay_ms: int = 0
    left_ms: int = 0
    """Delay under way in the initial rebalance, and the time by which it may still be extended."""
