"""One group built from the log after a takeover, in steps: a large one takes longer than anybody else may wait.

Nobody sees the group before its hard state is whole. Then its members get their timers, which takes steps as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sidecar.core.runtime.records import Record
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now


class Build:
    def __init__(self, shard: Shard, group_id: str, records: Iterator[Record | None]) -> None:
        """`records` come in the order in which a rebuild replays them; None: there is nothing yet, ask again."""
        self.group_id = group_id
        self._shard = shard
        self._records = records
        self._group: Group | None = shard.groups.get(group_id)
        self._members: Iterator[str] | None = None

    def step(self, count: int, now: Now) -> bool:
        """Replay so many records, or arm the timers of so many members. False: the group is there, as far as records
        make one. Raises InvariantError if they contradict each other."""
        if self._members is None:
            return self._replay(count)
        assert self._group is not None
        members = tuple(islice(self._members, count))
        self._shard.arm(self._group, members, now)
        if members:
            return True
        self._shard.loaded(self._group, now)
        return False

    def _replay(self, count: int) -> bool:
        taken = 0
        for record in islice(self._records, count):
            taken += 1
            if record is not None:
                self._group = self._shard.registry.replayed(record, self._group)
        if taken == count:
            return True
        if self._group is None:
            return False
        self._shard.install(self._group)
        self._members = iter(tuple(self._group.member_ids()))
        return True


def load(shard: Shard, group_id: str, records: Iterable[Record], now: Now) -> None:
    """All at once, whatever the order of the records."""
    build = Build(shard, group_id, iter(shard.registry.in_order(records)))
    while build.step(1_000, now):
        pass
