"""Until when this sidecar may take itself for the owner of what it was assigned.

The brokers answered it as a live member of the owners' group, and will not give its partitions away before the session
that began then is over. Every request looks at the lease, so that a process that was suspended finds out before it
answers.

The brokers' answer is for all partitions, and it stays away while their coordinator of the owners' group is replaced,
which takes longer than a lease. A partition can prove its owner, too: the next owner writes a claim, behind which no
write of the former owner is accepted. So what was committed under the fence proves that nobody had taken over when it
was sent, and what can be answered under a lease can be answered for the same time from then on.
"""

from __future__ import annotations

from sidecar.core.runtime.events import FOR_EVER_MS
from sidecar.core.runtime.turn import Now

LONG_AGO = Now(0, 0)


class Lease:
    """Of one sidecar, on all its partitions: by the clock of leases and by the wall clock, which shows a pause of the
    whole machine that no other clock of it has seen. If the wall clock was only set forward, the next answer of the
    brokers puts that right."""

    def __init__(self) -> None:
        self.until_ms, self.until_wall_ms = 0, FOR_EVER_MS
        self._answered = False

    @property
    def until(self) -> tuple[int, int]:
        return self.until_ms, self.until_wall_ms

    def extended(self, until_ms: int, until_wall_ms: int = FOR_EVER_MS) -> None:
        """The brokers know this sidecar as a live member; counted from when they were asked. The same answer may be
        told again, and an older one late."""
        self._answered |= until_ms > self.until_ms
        if until_ms >= self.until_ms:
            self.until_ms, self.until_wall_ms = until_ms, until_wall_ms

    def lost(self) -> None:
        self.until_ms = 0

    def valid(self, now: Now) -> bool:
        return now.mono_ms < self.until_ms and now.wall_ms < self.until_wall_ms

    def take_answered(self) -> bool:
        """Whether the brokers have answered since the last call."""
        answered, self._answered = self._answered, False
        return answered


class PartitionLease:
    """The sidecar's lease, or what this partition has proved by itself."""

    def __init__(self, sidecar: Lease) -> None:
        self._sidecar = sidecar
        self.proved_until = LONG_AGO

    def proved(self, until: Now) -> None:
        """A fenced write is committed that began a lease before `until`."""
        self.proved_until = until

    def unproved(self) -> None:
        """What was proved was another attempt at owning the partition."""
        self.proved_until = LONG_AGO

    def valid(self, now: Now) -> bool:
        until = self.proved_until
        return self._sidecar.valid(now) or (now.mono_ms < until.mono_ms and now.wall_ms < until.wall_ms)
