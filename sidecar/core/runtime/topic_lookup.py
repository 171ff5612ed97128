"""Looks up topics that a request names and the list of topics lacks, before the request is handled.

The list is read every `metadata_refresh_ms`. Kafka's own coordinator has it a few milliseconds after a topic was made,
and a member that joins right then must not get less here. So its request waits for a fresh look-up, `join_wait_ms` at
most, and is handled as if it had come then. So the group has the epochs that it would have at Kafka. A missing topic is
looked up when a member names it for the first time, and not with each heartbeat.

While a change of topics passes through this sidecar (`topics_moved`), every heartbeat waits in the same way. At Kafka
the first heartbeat after a change has it; one that is handled too early misses it for a whole interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sidecar.core.runtime.events import Event
from sidecar.core.runtime.turn import Turn

NAMES_MAX = 100
"""If more topics are missing, all topics are read."""


@dataclass(frozen=True, slots=True)
class LookFirst:
    """Background work: reads the topics with these `names`; None: all topics. `request`, if given, comes back as
    `TopicsSeen` after `wait_ms` at most."""

    group_id: str
    names: tuple[str, ...] | None
    request: Event | None
    token: int
    wait_ms: int


class TopicsSeen(Event):
    """The end of a topic lookup, or of the time for it: the request that waits for it is handled now."""

    inner: ClassVar[bool] = True

    request: Event
    token: int


def look_first(turn: Turn, event: Event, token: int, names: Iterable[str], wait_ms: int) -> bool:
    """Starts a lookup of unknown topics that the request names, or of all while topics change. Returns whether the
    request waits for it. Must be called before the first write."""
    if turn.looked:
        return False
    moved = turn.ports.topics_moved.now
    missing = tuple(n for n in dict.fromkeys(names) if n not in turn.image.by_name)
    if not missing and not moved:
        return False
    wanted = None if moved or len(missing) > NAMES_MAX else missing
    turn.fx.background.append(LookFirst(event.group_id, wanted, event if wait_ms else None, token, wait_ms))
    return wait_ms > 0


def look_beside(turn: Turn, group_id: str) -> None:
    """Reads all topics, while the request goes on."""
    turn.fx.background.append(LookFirst(group_id, None, None, 0, 0))
