"""Builds groups from the log after a takeover, in steps: a large group takes longer than other requests may wait.

A group becomes visible when its hard state is complete. Then its members get their timers, which takes steps as well. A
group that cannot be read is refused, and the others of its partition go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Count, Log, Reply
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.load_queue import LoadQueue
from sidecar.core.runtime.pending_requests import Held, LogView, Tally, refuse
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code, InvariantError

AT_ONCE = 16
"""Groups of all partitions that requests load between two slices of the driver: some 6 ms of work."""


class Build:
    """Builds one group in steps."""

    def __init__(self, shard: Shard, group_id: str, records: Iterator[Record | None]) -> None:
        """`records` come in the order in which a rebuild replays them; None: the next record is not available yet."""
        self.group_id = group_id
        self._shard = shard
        self._records = records
        self._group: Group | None = shard.groups.get(group_id)
        self._members: Iterator[str] | None = None

    def step(self, count: int, now: Now) -> bool:
        """Replays `count` records, or arms the timers of `count` members. Returns False when the group is complete.
        Raises InvariantError if the records contradict each other."""
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
    """Builds a group in one call from records in any order."""
    build = Build(shard, group_id, iter(shard.registry.in_order(records)))
    while build.step(1_000, now):
        pass


class GroupLoader:
    """Loads all groups of one partition, from each takeover on."""

    def __init__(
        self,
        partition: int,
        log: LogView,
        settings: ServiceSettings,
        occupied: Callable[[str, bool], None],
        tally: Tally,
        out: list[Command],
    ) -> None:
        """`occupied(group_id, members)` is called for each loaded group; `members`: it has members that commit
        offsets."""
        self.queue = LoadQueue()
        """Groups that are not loaded yet since the takeover, and the requests that wait for them."""
        self.unreadable: dict[str, str] = {}
        """Groups with unreadable records, and why. Their requests are refused: such a record may assign partitions that
        look free."""
        self._builds: dict[str, Build] = {}
        """Groups whose loading has begun."""
        self._failed_once: set[str] = set()
        """Groups whose last loading failed, although no record explains it."""
        self._shard: Shard | None = None
        self._partition, self._log = partition, log
        self._hold_ms, self._load_at_once = settings.hold_ms, settings.load_at_once
        self._occupied = occupied
        self._tally, self._out = tally, out

    def begin(self, shard: Shard, held: Iterable[Held]) -> int:
        """Starts to load the groups of this partition, and returns their number. `held`: the requests that came during
        the takeover."""
        self._shard, self.queue = shard, LoadQueue(self._log.groups(self._partition))
        for h in held:
            self.queue.hold(h, self._size(h.event.group_id))
        return len(self.queue.left)

    def stop(self) -> list[Held]:
        """Stops loading because the shard is dropped. Returns the requests that wait; they stay counted as open."""
        held = self.queue.everybody()
        self._shard, self.queue, self.unreadable, self._builds = None, LoadQueue(), {}, {}
        return held

    def has(self, group_id: str) -> bool:
        """Whether there are records of this group."""
        loaded = self._shard is not None and group_id in self._shard.groups
        return loaded or group_id in self.queue.left or group_id in self.unreadable

    # ---- requests -----------------------------------------------------------------------------------------
    def must_wait(self, group_id: str, now: Now) -> bool:
        """Whether a request must wait until its group is loaded. A small group is loaded within this call, unless the
        requests of a takeover have loaded AT_ONCE groups already before the driver loads the next ones."""
        queue = self.queue
        if not queue.must_wait(group_id):
            return False
        if group_id in queue.behind or group_id in self._builds or self._size(group_id) > self._load_at_once:
            return True
        if self._tally.loaded_at_once >= AT_ONCE:
            return True
        self._tally.loaded_at_once += 1
        while group_id in queue.left:
            self.step(group_id, self._load_at_once, now)
        return False

    def hold(self, token: int, event: Event, now: Now) -> None:
        """Holds a request until its group is loaded."""
        size = self._size(event.group_id)
        if self._hold_ms:
            self._tally.open += 1
            self.queue.hold(Held(token, event, now.mono_ms + self._hold_ms), size)
        else:
            self.queue.want(event.group_id, size)
            refuse(self._out, token, event, Code.COORDINATOR_LOAD_IN_PROGRESS)

    def take(self, group_id: str, count: int) -> list[Held]:
        """Takes out the next requests that wait for this group, which is loaded."""
        held = self.queue.take(group_id, count)
        self._tally.open -= len(held)
        return held

    def refuse_late(self, now: Now) -> None:
        for h in self.queue.late(now.mono_ms):
            self._tally.open -= 1
            refuse(self._out, h.token, h.event, Code.COORDINATOR_LOAD_IN_PROGRESS)

    def refuse_unreadable(self, token: int, event: Event) -> None:
        why = f"The group's state cannot be read: {self.unreadable[event.group_id]}"
        self._out.append(Reply(token, event.refused(Code.COORDINATOR_NOT_AVAILABLE, why)))

    # ---- groups -------------------------------------------------------------------------------------------
    def step(self, group_id: str, count: int, now: Now) -> None:
        """Takes one step of `count` records. Re-raises an error that may be a bug the first time; the second time the
        group becomes unreadable."""
        shard = self._shard
        assert shard is not None
        build = self._builds.get(group_id)
        if build is None:
            records = self._log.records(self._partition, group_id)
            build = self._builds[group_id] = Build(shard, group_id, records)
        try:
            if build.step(count, now):
                return
            self._loaded(group_id)
        except Exception as exc:
            self._loaded(group_id)
            shard.unload(group_id)
            if not isinstance(exc, InvariantError) and group_id not in self._failed_once:
                self._failed_once.add(group_id)
                raise  # a bug that may not show again: everything is built anew
            self._keep_unreadable(group_id, repr(exc))
        else:
            self._failed_once.discard(group_id)
            self._occupied(group_id, shard.has_committers(group_id))

    def _loaded(self, group_id: str) -> None:
        self.queue.loaded(group_id)
        self._builds.pop(group_id, None)

    def _keep_unreadable(self, group_id: str, why: str) -> None:
        """Marks the group as unreadable: another attempt with the same records would fail in the same way."""
        self.unreadable[group_id] = why
        fields = {"group_id": group_id, "partition": self._partition, "error": why}
        self._out.append(Count("invariant_violations"))
        self._out.append(Log("a group cannot be read; its requests are refused, the others go on", fields, "error"))
        self._occupied(group_id, True)  # so that the broker keeps its offsets

    def _size(self, group_id: str) -> int:
        return self._log.size(self._partition, group_id)
