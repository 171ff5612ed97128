"""Heartbeats that a front answers itself, under a grant of the coordinator.

A steady member sends the same bytes each time and is due the same answer. The coordinator grants that answer: until
the member's session would end, until the group changes (`Void`), and as long as the coordinator's lease lasts. The
principal's rights, as the broker reported them, have an end of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sidecar.core.runtime.events import FOR_EVER_MS
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.link.messages import TOUCH_MS, Grant, Touch

REQUEST_BYTES, STEADY_BYTES = 1_024, 300
"""Longest request that is remembered, and the memory of an answer beside its own bytes."""
CONNECTION_CACHE_BYTES = 1 << 18
PAUSE_MS, PAUSE_INTERVAL_MS = 300, 1_000
"""While topics change: time in which the coordinator answers every heartbeat, and least time between two beginnings."""


@dataclass(slots=True)
class GroupGrant:
    """The grants to members of one group, all of them valid or all of them void."""

    valid: bool = True


@dataclass(slots=True)
class Steady:
    """An answer that may be given again: `head`, the correlation id, `tail`."""

    group: GroupGrant
    api_key: int
    version: int
    until_ms: int
    touch: Touch
    touched_ms: int
    head: bytes
    tail: bytes


def _weigh(s: Steady) -> int:
    return STEADY_BYTES + len(s.tail)


def steady_cache() -> BoundedCache[bytes, Steady]:
    """Returns a cache by the bytes of a request, which end at 1 KiB for a member that reports nothing."""
    return BoundedCache(CONNECTION_CACHE_BYTES, key_bytes=REQUEST_BYTES, weigh=_weigh)


@dataclass(slots=True)
class Grants:
    """The heartbeats that one front may answer by itself."""

    lease_until_ms: int = 0
    lease_until_wall_ms: int = FOR_EVER_MS
    groups: dict[str, GroupGrant] = field(default_factory=dict)
    paused_until_ms: int = 0

    def pause(self, now_ms: int) -> None:
        """Stops answering for a moment. Topics were changed through this front: a heartbeat that it answered now might
        miss that for an interval."""
        if now_ms >= self.paused_until_ms - PAUSE_MS + PAUSE_INTERVAL_MS:
            self.paused_until_ms = now_ms + PAUSE_MS

    def stop(self) -> None:
        """Lets the coordinator answer every heartbeat from now on."""
        self.paused_until_ms = FOR_EVER_MS

    def remember(self, grant: Grant, api_key: int, version: int, until_ms: int, frame: bytes, now_ms: int) -> Steady:
        """Returns an answer that may be given again. `frame`: the whole response; `until_ms`: the end of the
        principal's rights."""
        group = self.groups.get(grant.group_id)
        if group is None:
            group = self.groups[grant.group_id] = GroupGrant()
        touch = Touch(grant.group_id, grant.member_id)
        # The first answer under a grant is reported at once: the session was armed without the touches' allowance.
        touched_ms = now_ms - TOUCH_MS
        return Steady(group, api_key, version, min(grant.until_ms, until_ms), touch, touched_ms, frame[:4], frame[8:])

    def void(self, groups: tuple[str, ...]) -> None:
        for group_id in groups:
            group = self.groups.pop(group_id, None)
            if group is not None:
                group.valid = False

    def void_all(self) -> None:
        self.void(tuple(self.groups))
        self.lease_until_ms = 0

    def allows(self, s: Steady, api_key: int, version: int, now_ms: int) -> bool:
        same_api = s.version == version and s.api_key == api_key
        in_time = self.paused_until_ms <= now_ms < s.until_ms and now_ms < self.lease_until_ms
        return same_api and s.group.valid and in_time and time.time() * 1000 < self.lease_until_wall_ms


def touch_due(s: Steady, now_ms: int) -> bool:
    """Returns whether the coordinator must be notified of this answer."""
    if now_ms - s.touched_ms < TOUCH_MS:
        return False
    s.touched_ms = now_ms
    return True
