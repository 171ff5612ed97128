"""What each connection of a sidecar to a broker is for.

A broker answers the requests of one connection one after the other, and some wait there: a JoinGroup for other members,
a commit for all in-sync replicas. Whatever is sent behind them on the same connection waits, too. So requests that may
wait for each other, or for different things, never share a lane.
"""

from __future__ import annotations

from enum import Enum

FENCES, TRANSACTIONS, PLACEHOLDERS, SHARE_PLACEHOLDERS = 16, 4, 3, 3
"""Connections to each broker on these lanes; `offsets.commit_lanes` has those of the commits."""


class Lane(Enum):
    QUESTIONS = "questions"
    """Settings of the broker, states of its groups: it answers at once."""
    COMMITS = "commits"
    """Clients' requests about offsets that another broker keeps; a commit waits for all in-sync replicas."""
    OWNERS = "owners"
    """JoinGroup, SyncGroup and Heartbeat of this sidecar in the owners' group."""
    REMOVAL = "removal"
    """LeaveGroup in the owners' group: for a sidecar that is gone, or for this one when it stops. A takeover waits for
    it."""
    FENCES = "fences"
    """InitProducerId: it waits for a transaction under way, and for the replicas of its log."""
    TRANSACTIONS = "transactions"
    """AddPartitionsToTxn and EndTxn."""
    PLACEHOLDERS = "placeholders"
    """Placeholders in the broker's groups: many short requests. A JoinGroup that is held back has a connection of its
    own."""
    SHARE_PLACEHOLDERS = "share placeholders"
    """Heartbeats of placeholders in the brokers' share groups. What waits for the share coordinator is never asked
    here."""
    MOVES = "moves"
    """Groups that come from the broker: what it knows of them, and LeaveGroup for their members."""
    LEFT_OVER = "left over"
    """OffsetFetch of groups without members, by hundreds."""
    LOG_ENDS = "log ends"
    """ListOffsets of state partitions: a takeover waits for it."""
    EXPORTER = "exporter"
    """OffsetFetch and ListOffsets for figures of lag, by hundreds; what brokers tell of groups for the page."""
