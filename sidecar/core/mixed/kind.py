"""What the two kinds of groups do when they meet, as rows for the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, LeaveGroup, SyncGroup
from sidecar.core.classic.kind import CLASSIC
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.kind import CONSUMER as PLAIN
from sidecar.core.events import Event
from sidecar.core.groups import Handler
from sidecar.core.mixed.join import classic_joins
from sidecar.core.mixed.leave import consumer_heartbeat, join_over, leave_group, rebalance_over, session_over, sync_over
from sidecar.core.mixed.sync import heartbeat, sync
from sidecar.core.mixed.timers import JOIN, SYNC
from sidecar.core.mixed.upgrade import consumer_joins

CONSUMER = replace(
    PLAIN,
    events={**PLAIN.events, ConsumerHeartbeat: consumer_heartbeat},
    timers={**PLAIN.timers, "session": session_over, "rebalance": rebalance_over, JOIN: join_over, SYNC: sync_over},
)
"""Consumer groups, whose members may speak the classic protocol, too."""

CROSSINGS: Mapping[str, Mapping[type[Event], Handler]] = {
    CONSUMER.name: {
        JoinGroup: classic_joins,
        SyncGroup: sync,
        ClassicHeartbeat: heartbeat,
        LeaveGroup: leave_group,
    },
    CLASSIC.name: {ConsumerHeartbeat: consumer_joins},
}
"""Name of a kind -> an event of the other kind -> what becomes of it."""
