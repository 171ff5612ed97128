"""Requests of clients that wait before the core, each for one partition or group, and for a limited time."""

from __future__ import annotations

from sidecar.coordinator.clock import now
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.pending_requests import Held, Tally, Waiting, refuse
from sidecar.core.runtime.service import Service
from sidecar.core.vocabulary.errors import Code

Key = int | str
"""The partition or group that a request waits for."""


class ParkedRequests:
    """The requests that wait. `most`: how many may wait at the same time."""

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self._most = most
        self._tally = Tally()
        self._waiting: dict[Key, Waiting] = {}

    def __len__(self) -> int:
        return self._tally.open

    def partitions(self) -> list[int]:
        """Returns the partitions that requests wait for."""
        return [key for key in self._waiting if isinstance(key, int)]

    def park(self, key: Key, token: int, event: Event, hold_ms: int) -> None:
        """Lets a request wait until `take`, or for `hold_ms` at most."""
        out = self._service.out
        if self._tally.open >= self._most:
            refuse(out, token, event, Code.COORDINATOR_NOT_AVAILABLE)
        else:
            waiting = self._waiting.setdefault(key, Waiting(self._tally, out))
            waiting.hold(Held(token, event, now().mono_ms + hold_ms))

    def take(self, key: Key) -> list[Held]:
        """Returns the requests that waited for this key, and removes them."""
        waiting = self._waiting.pop(key, None)
        held = [] if waiting is None else waiting.all()
        self._tally.open -= len(held)
        return held

    def refuse(self, key: Key, code: Code) -> None:
        if (waiting := self._waiting.pop(key, None)) is not None:
            waiting.refuse(code)

    def expire(self) -> None:
        """Refuses the requests whose time is over."""
        at = now()
        for waiting in self._waiting.values():
            if not any(h.until_ms <= at.mono_ms for h in waiting):
                continue
            for h in waiting.all():
                if h.until_ms > at.mono_ms:
                    waiting.again([h])
                    continue
                # A broker answers a classic member's heartbeat without an error while it loads the group. So only the
                # holder of a lease may answer that it is loading.
                leased = self._service.owner_of(h.event.group_id).lease.valid(at)
                waiting.refuse_one(h, Code.COORDINATOR_LOAD_IN_PROGRESS if leased else Code.NOT_COORDINATOR)
