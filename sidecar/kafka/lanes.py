"""The purposes of a sidecar's connections to a broker.

A broker answers the requests of one connection one after the other, and some wait there: a JoinGroup for other members,
a commit for all in-sync replicas. Whatever is sent behind them on the same connection waits, too. So requests that may
wait for each other, or for different things, never share a lane.
"""

from __future__ import annotations

from enum import Enum

FENCES, TRANSACTIONS, PLACEHOLDERS, SHARE_PLACEHOLDERS = 16, 4, 3, 3
"""Connections to each broker on these lanes; for commits it is `offsets.commit_lanes`."""


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
    """Heartbeats of placeholders in the brokers' share groups. Requests that wait for the share coordinator never go
    here."""
    MOVES = "moves"
    """Groups that come from the broker: their descriptions, and LeaveGroup for their members."""
    LEFT_OVER = "left over"
    """OffsetFetch of groups without members, by hundreds."""
    LOG_ENDS = "log ends"
    """ListOffsets of state partitions: a takeover waits for it."""
    EXPORTER = "exporter"
    """OffsetFetch and ListOffsets for the lag metrics, by hundreds; the brokers' lists of groups for the page."""
