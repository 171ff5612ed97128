"""Until when this sidecar may answer as the owner of its assigned partitions.

The brokers answered it as a live member of the owners' group. They keep its partitions for it until the session that
began then is over. Every request checks the lease, so that a process that was suspended notices before it answers.

The brokers' answer covers all partitions. It stays away while the coordinator of the owners' group is replaced, which
takes longer than a lease. But a partition can also prove its owner: the next owner writes a claim, behind which no
write of the former owner is accepted. So a commit under the fence proves that no takeover had happened when the write
was sent, and starts a lease of the same length from then on.
"""

from __future__ import annotations

from sidecar.core.runtime.events import FOR_EVER_MS
from sidecar.core.runtime.turn import Now

LONG_AGO = Now(0, 0)


class Lease:
    """The lease of one sidecar on all its partitions. It has two ends: by the clock of leases, and by the wall clock,
    which alone shows a pause of the whole machine. If the wall clock was only set forward, the next answer of the
    brokers corrects it."""

    def __init__(self) -> None:
        self.until_ms, self.until_wall_ms = 0, FOR_EVER_MS
        self.in_doubt = False
        """Whether the lease does not count: an owner map was missed, and not all partitions are proved since."""
        self._answered = False

    @property
    def until(self) -> tuple[int, int]:
        return (0 if self.in_doubt else self.until_ms), self.until_wall_ms

    def extended(self, until_ms: int, until_wall_ms: int = FOR_EVER_MS) -> None:
        """Extends the lease: the brokers know this sidecar as a live member, counted from when they were asked. The
        same answer may be reported again, and an older one late."""
        self._answered |= until_ms > self.until_ms
        if until_ms >= self.until_ms:
            self.until_ms, self.until_wall_ms = until_ms, until_wall_ms

    def lost(self) -> None:
        self.until_ms, self.in_doubt = 0, False

    def valid(self, now: Now) -> bool:
        return not self.in_doubt and now.mono_ms < self.until_ms and now.wall_ms < self.until_wall_ms

    def take_answered(self) -> bool:
        """Whether the brokers have answered since the last call."""
        answered, self._answered = self._answered, False
        return answered


class PartitionLease:
    """The lease on one partition: the sidecar's lease, or the partition's own proof."""

    def __init__(self, sidecar: Lease) -> None:
        self._sidecar = sidecar
        self.proved_until = LONG_AGO

    def proved(self, until: Now) -> None:
        """Takes in that a fenced write is committed. The write began a lease that ends at `until`."""
        self.proved_until = until

    def unproved(self) -> None:
        """Ends the proof, which belonged to an earlier attempt at owning the partition."""
        self.proved_until = LONG_AGO

    def in_doubt(self, now: Now) -> bool:
        """Whether a map was missed, and the partition is not proved since."""
        return self._sidecar.in_doubt and not self.valid(now)

    def valid(self, now: Now) -> bool:
        until = self.proved_until
        return self._sidecar.valid(now) or (now.mono_ms < until.mono_ms and now.wall_ms < until.wall_ms)
