"""Initial rebalance delay: the first target of a group waits until most of its members are there
(streams.initial.rebalance.delay.ms).

Kafka keeps the timer in memory, so that a failover cuts the delay short. Here its end stands in the group's record.
"""

from __future__ import annotations

from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import config_of
from sidecar.core.streams.group import StreamsGroup

TIMER = "delay"


def end_of_delay(turn: Turn, group: StreamsGroup) -> int:
    """Returns the end of the delay in Unix milliseconds, for the record of a group whose first member has joined. A
    delay under way goes on, even if all members left meanwhile."""
    if delayed(turn, group):
        return group.delay_until_ms
    delay_ms = config_of(turn, group.group_id).initial_rebalance_delay_ms
    if not delay_ms:
        return 0
    turn.timers.set((TIMER, group.group_id), turn.now.mono_ms + delay_ms)
    return turn.now.wall_ms + delay_ms


def delayed(turn: Turn, group: StreamsGroup) -> bool:
    return turn.timers.deadline((TIMER, group.group_id)) is not None


def go_on(turn: Turn, group: StreamsGroup) -> None:
    """Resumes the delay of a rebuilt group. However clocks differ, it waits no longer than the whole delay, and not at
    all if its first target exists."""
    if group.assignment_timestamp_ms:
        return
    left_ms = min(group.delay_until_ms - turn.now.wall_ms, config_of(turn, group.group_id).initial_rebalance_delay_ms)
    if left_ms > 0:
        turn.timers.set((TIMER, group.group_id), turn.now.mono_ms + left_ms)
