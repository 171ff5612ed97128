"""One partition of a coordinator's topic on its leader: appends its records, and answers when they are committed.

As Kafka's CoordinatorRuntime: what writes nothing is answered when everything written before is committed, and an
append that is not committed within offsets.commit.timeout.ms is answered with an error, though it may be committed
later. Nothing is known of the shard before its log has been read (COORDINATOR_LOAD_IN_PROGRESS).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tests.whole.broker.batches import Batch, of_records
from tests.whole.broker.codes import ON_APPEND, Err, Refused
from tests.whole.broker.ports import Handle
from tests.whole.broker.replica import Replica

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

Done = Callable[[Err], None]


class Shard:
    def __init__(self, node: Node, replica: Replica) -> None:
        self.node = node
        self.replica = replica
        self.epoch = replica.state.leader_epoch
        self.active = False
        self.closed = False
        self._pending_end = 0
        self._timers: dict[Hashable, Handle] = {}

    # ---- life -----------------------------------------------------------------------------------------------
    def open(self, loaded: Callable[[], None]) -> None:
        """Read the log, which takes a while."""

        def load() -> None:
            if self.closed:
                return
            for batch in self.replica.log.batches:
                self.replay(batch)
            self._pending_end = self.replica.log.end
            self.active = True
            self.replica.watchers.append(self.committed)
            self.committed()
            loaded()

        self.node.later(self.node.cluster.draw(self.node.cluster.settings.delays.load), load)

    def close(self) -> None:
        self.closed = True
        self.active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self.committed in self.replica.watchers:
            self.replica.watchers.remove(self.committed)

    def replay(self, batch: Batch) -> None:
        raise NotImplementedError

    def committed(self) -> None:
        """The high watermark has moved."""

    # ---- writing --------------------------------------------------------------------------------------------
    def write(
        self,
        records: Sequence[tuple[Hashable, Any]],
        done: Done,
        producer: tuple[int, int] = (-1, -1),
        marker: str = "",
    ) -> None:
        """`done` is called, maybe at once, with NONE or with what the coordinator answers instead."""
        if not records and not marker:
            self.settle(done)
            return
        code = self.node.append_code(None if self.closed else self.replica)
        if code != Err.NONE:
            done(ON_APPEND.get(code, code))
            return
        batch = of_records(records, self.node.host.wall_ms(), *producer)
        if marker:
            batch = Batch(0, 0, -1, (), batch.time_ms, producer[0], producer[1], -1, True, marker)
        placed = self.replica.log.append(batch, self.replica.state.leader_epoch)
        self._pending_end = placed.last + 1
        self.replay(placed)
        self.settle(done)
        self.replica.appended()

    def settle(self, done: Done) -> None:
        """Calls `done` when everything written so far is committed."""
        timeout_ms = self.node.settings.number("offsets.commit.timeout.ms")
        self.replica.wait(self._pending_end, timeout_ms, lambda code: done(ON_APPEND.get(code, code)))

    # ---- time -----------------------------------------------------------------------------------------------
    def timer(self, key: Hashable, ms: float, fn: Callable[[], None]) -> None:
        """One for each key; a later one replaces it."""
        self.cancel(key)

        def run() -> None:
            self._timers.pop(key, None)
            if self.active:
                fn()

        self._timers[key] = self.node.later(ms, run)

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def check(self) -> None:
        """Raises Refused if the shard does not serve."""
        if self.closed:
            raise Refused(Err.NOT_COORDINATOR)
        if not self.active:
            raise Refused(Err.COORDINATOR_LOAD_IN_PROGRESS)
