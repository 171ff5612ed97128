"""Time in which no heartbeat could reach a partition. The sessions of its members get it back, so none of them expires
for it."""

from __future__ import annotations

from sidecar.core.runtime.turn import Now

GAP_MS = 1_000
"""A longer pause of the whole process is given back to every member's session."""


class LostTime:
    def __init__(self, partitions: int) -> None:
        self._woken_ms = 0
        self._gap_ms = 0
        self._lost_ms = [0] * partitions

    def woken(self, now: Now) -> int:
        """Returns how long the process stood still, 0 if no longer than GAP_MS."""
        self._gap_ms = now.mono_ms - self._woken_ms if self._woken_ms else 0
        self._woken_ms = now.mono_ms
        return self._gap_ms if self._gap_ms > GAP_MS else 0

    def take(self, partition: int, leased: bool) -> int:
        """Returns the time that members of this partition get back now. Without a lease it accumulates, because no
        heartbeat counts."""
        if self._gap_ms > GAP_MS or not leased:
            self._lost_ms[partition] += self._gap_ms
        if not leased:
            return 0
        lost_ms, self._lost_ms[partition] = self._lost_ms[partition], 0
        return lost_ms
