"""Partitions that stay with their owner because groups there are in the middle of a rebalance.

The members of a classic group wait for one another, to join and then to sync, and with another owner that begins anew.
Each sidecar names in its JoinGroup the partitions with such groups, and the leader of the owners' group leaves these
with their owners, for a while at most. This is a preference: the names may be out of date, or come from a stranger.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set

from sidecar.coordinator.membership.owners_protocol import barriers_of
from sidecar.link.ports import Logger

FRESH_S = 2.0
"""Seconds for which the members' barriers count. Later the rebalances may be over, and the group must join anew, which
reports them again."""


class Barriers:
    def __init__(self, wait_s: float, log: Logger) -> None:
        self._wait_s = wait_s
        self._log = log
        self._reported: Set[int] = frozenset()
        self._reported_s = float("-inf")
        self._since_s: dict[int, float] = {}
        """Partition that should move -> monotonic time since when."""
        self._late: set[int] = set()
        """The partitions of `_since_s` that move although their groups still rebalance: the wait is over."""

    def reported(self, metadata: Iterable[bytes]) -> None:
        """Takes in the metadata with which each member joined the generation that begins."""
        self._reported = frozenset(p for raw in metadata for p in barriers_of(raw))
        self._reported_s = time.monotonic()

    def stay(self, leaders: Sequence[int], owners: Sequence[int], new: Set[int]) -> Set[int]:
        """Returns the partitions that stay because of a barrier. `new`: partitions that stay in any case."""
        at_s = time.monotonic()
        moving = {p for p, pair in enumerate(zip(leaders, owners, strict=False)) if len(set(pair)) > 1} - new
        self._since_s = {p: self._since_s.get(p, at_s) for p in moving}
        reported = moving & self._reported if at_s - self._reported_s < FRESH_S else set()
        late = {p for p in reported if at_s - self._since_s[p] >= self._wait_s}
        for p in sorted(late - self._late):
            self._log.info("a partition moves during a rebalance", partition=p, waited_s=self._wait_s)
        self._late = (self._late | late) & moving
        return reported - late
