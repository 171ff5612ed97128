"""Rows of the registry for events of one kind of group that meet a group of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, LeaveGroup, SyncGroup
from sidecar.core.classic.registration import CLASSIC
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.regexes import RegexResolved
from sidecar.core.consumer.registration import CONSUMER as PLAIN
from sidecar.core.migration.join import classic_joins
from sidecar.core.migration.leave import (
    consumer_heartbeat,
    join_over,
    leave_group,
    remove,
    sync_over,
)
from sidecar.core.migration.parked_joins import MixedSoft, answer_waiting, waited_enough, wake
from sidecar.core.migration.sync import heartbeat, sync
from sidecar.core.migration.timers import JOIN, SYNC, WAIT
from sidecar.core.migration.upgrade import consumer_joins
from sidecar.core.modern.sessions import removing_timers
from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.registry import Handler
from sidecar.core.runtime.turn import Turn


def _then_wake(handler: Handler) -> Handler:
    def handle(turn: Turn, event: Event, token: int) -> None:
        handler(turn, event, token)
        wake(turn, event.group_id)

    return handle


CONSUMER = replace(
    PLAIN,
    soft=MixedSoft,
    events={
        **PLAIN.events,
        ConsumerHeartbeat: consumer_heartbeat,
        AssignorDone: _then_wake(PLAIN.events[AssignorDone]),
        RegexResolved: _then_wake(PLAIN.events[RegexResolved]),
    },
    timers={
        **PLAIN.timers,
        **removing_timers(remove),
        JOIN: join_over,
        SYNC: sync_over,
        WAIT: waited_enough,
    },
    removing=PLAIN.removing | {JOIN, SYNC},
    answer_waiting=answer_waiting,
)
"""Consumer groups, whose members may also speak the classic protocol."""

CROSSINGS: Mapping[str, Mapping[type[Event], Handler]] = {
    CONSUMER.name: {
        JoinGroup: classic_joins,
        SyncGroup: sync,
        ClassicHeartbeat: heartbeat,
        LeaveGroup: leave_group,
    },
    CLASSIC.name: {ConsumerHeartbeat: consumer_joins},
}
"""Name of a kind -> an event of the other kind -> its handler."""
