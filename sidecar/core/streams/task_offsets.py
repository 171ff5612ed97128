"""The offsets of tasks' states that members report, and the memory that they take.

They are hints for the assignor and soft state: a new owner has none until the next reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.vocabulary.errors import CoordinatorError

OFFSET_BYTES = 120
"""About how many bytes an offset takes."""


def note_offsets(turn: Turn, group: StreamsGroup, hb: StreamsHeartbeat) -> None:
    """Keeps the offsets that the request has; as in Kafka the tasks need not exist. Where there is no room for them the
    member counts as one without state, which is no reason to refuse its heartbeat."""
    if hb.task_offsets is None and hb.task_end_offsets is None:
        return
    soft: StreamsSoft = turn.soft_of(group.group_id)
    before = soft.offsets.get(hb.member_id, ({}, {}))
    drop_offsets(turn, group, hb.member_id)
    given = (hb.task_offsets, hb.task_end_offsets)
    offsets, ends = (old if new is None else _by_task(new) for old, new in zip(before, given, strict=True))
    more = _bytes_of(offsets) + _bytes_of(ends)
    try:
        check_room(turn.ports.limits, group.limited_bytes + soft.held_bytes, more)
    except CoordinatorError:
        turn.fx.count("members_refused", "offsets")
        return
    soft.offsets[hb.member_id] = (offsets, ends)
    turn.hold(group.group_id, more)


def drop_offsets(turn: Turn, group: StreamsGroup, member_id: str) -> None:
    soft: StreamsSoft = turn.soft_of(group.group_id)
    gone = soft.offsets.pop(member_id, None)
    if gone is not None:
        turn.hold(group.group_id, -sum(map(_bytes_of, gone)))


def _by_task(offsets: tuple[tuple[str, int, int], ...]) -> dict[str, dict[int, int]]:
    by_subtopology: dict[str, dict[int, int]] = {}
    for subtopology, partition, offset in offsets:
        by_subtopology.setdefault(subtopology, {})[partition] = offset
    return by_subtopology


def _bytes_of(offsets: Mapping[str, Mapping[int, int]]) -> int:
    return sum(OFFSET_BYTES * (1 + len(by_partition)) for by_partition in offsets.values())
