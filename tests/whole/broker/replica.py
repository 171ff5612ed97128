"""One replica of a partition: it follows, or it leads and knows how far the others have come.

The leader pushes a kick to a follower that lacks something; the follower then fetches from the leader's log as it is at
that moment, and tells how far it came. That is Kafka's fetch, seen from the other end: without an idle poll, so that a
quiet simulation has no events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.whole.broker.batches import Batch
from tests.whole.broker.codes import Err
from tests.whole.broker.image import Partition
from tests.whole.broker.log import Log
from tests.whole.broker.ports import Handle

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

KICK_AGAIN_MS = 500
"""A follower that was not reached is tried again after so long (replica.fetch.wait.max.ms)."""
Committed = Callable[[Err], None]


@dataclass(slots=True)
class Waiting:
    """An append that waits for the followers. `min_isr` -1: whatever the ISR is."""

    end: int
    then: Committed
    min_isr: int
    timer: Handle | None = None


@dataclass(slots=True)
class Follower:
    """A follower, as its leader knows it. `caught_up_ms`: when it last had everything."""

    end: int = -1
    high_watermark: int = -1
    kicked: bool = False
    kicked_ms: int = 0
    caught_up_ms: int = 0


class Replica:
    def __init__(self, node: Node, topic: str, topic_id: bytes, index: int) -> None:
        self.node = node
        self.topic, self.topic_id, self.index = topic, topic_id, index
        self.log = Log()
        self.high_watermark = 0
        self.state = Partition((), (), -1, -1)
        self.leads = False
        self.epoch_start = 0
        self.followers: dict[int, Follower] = {}
        self.waiting: list[Waiting] = []
        self.watchers: list[Callable[[], None]] = []
        """Called when the high watermark has moved, and when this replica leads no more."""
        self._asking_for: tuple[int, ...] = ()
        self._lag_timer: Handle | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    # ---- becoming -------------------------------------------------------------------------------------------
    def apply(self, state: Partition) -> None:
        """A newer image has come to this broker."""
        if state.version < self.state.version:
            return  # the controller's own answer came first
        was, self.state = self.state, state
        me = self.node.node_id
        if state.leader == me and (not self.leads or state.leader_epoch != was.leader_epoch):
            self._lead()
        elif state.leader != me and self.leads:
            self._resign(Err.NOT_LEADER_OR_FOLLOWER)
        if self.leads:
            if was.isr != state.isr or was.version != state.version:
                self._asking_for = ()
            self._advance()
            self.kick_all()
            for n in self.followers:
                self._let_in(n)
            self._watch_lag()

    def _lead(self) -> None:
        self._resign(Err.NOT_LEADER_OR_FOLLOWER)
        self.leads = True
        self.epoch_start = self.log.end
        self.high_watermark = min(self.high_watermark, self.log.end)
        at_ms = self.node.host.mono_ms()
        others = (n for n in self.state.replicas if n != self.node.node_id)
        self.followers = {n: Follower(caught_up_ms=at_ms) for n in others}
        self._asking_for = ()

    def _resign(self, why: Err) -> None:
        self.leads = False
        self.followers = {}
        waiting, self.waiting = self.waiting, []
        for w in waiting:
            self._finish(w, why)
        for watch in list(self.watchers):
            watch()

    def gone(self) -> None:
        """The topic was deleted."""
        self._resign(Err.UNKNOWN_TOPIC_OR_PARTITION)

    @staticmethod
    def _finish(w: Waiting, code: Err) -> None:
        if w.timer is not None:
            w.timer.cancel()
        w.then(code)

    # ---- leading --------------------------------------------------------------------------------------------
    def append(self, batch: Batch, timeout_ms: float, min_isr: int, then: Committed) -> Batch:
        """`then` is told NONE when all in-sync replicas have it. The caller has checked what is to be checked."""
        placed = self.log.append(batch, self.state.leader_epoch)
        w = Waiting(placed.last + 1, then, min_isr)
        self.waiting.append(w)
        w.timer = self.node.later(timeout_ms, lambda: self._late(w))
        self.appended()
        return placed

    def appended(self) -> None:
        """The log has become longer: the disk first, then the followers."""
        self.node.later(self.node.cluster.disk_ms(self.node.node_id), self._written)

    def _written(self) -> None:
        if self.leads:
            self.kick_all()
            self._advance()
            self._watch_lag()

    def _late(self, w: Waiting) -> None:
        if w in self.waiting:
            self.waiting.remove(w)
            w.then(Err.REQUEST_TIMED_OUT)

    @property
    def maximal_isr(self) -> set[int]:
        """With those whom the controller may have let in already (KIP-497)."""
        return {*self.state.isr, *self._asking_for}

    def _min_isr(self) -> int:
        own = int(self.node.settings.topic(self.topic, "min.insync.replicas"))
        return min(own, len(self.state.replicas))

    def too_few(self) -> bool:
        """Too few in-sync replicas for acks=all."""
        return len(self.state.isr) < self._min_isr()

    def wait(self, end: int, timeout_ms: float, then: Committed) -> None:
        """`then` is told when everything up to `end` is committed."""
        if end <= self.high_watermark:
            then(Err.NONE)
            return
        w = Waiting(end, then, -1)
        w.timer = self.node.later(timeout_ms, lambda: self._late(w))
        self.waiting.append(w)

    def forget(self) -> None:
        """The broker has crashed; only the log is left."""
        self.state = Partition((), (), -1, -1)
        self._asking_for = ()
        self._lag_timer = None

    def _advance(self) -> None:
        """The high watermark does not move while the ISR is too small (KIP-966)."""
        if not self.leads:
            return
        mark = self.log.end
        for n in self.maximal_isr - {self.node.node_id}:
            mark = min(mark, self.followers[n].end if n in self.followers else mark)
        if mark > self.high_watermark and len(self.state.isr) >= self._min_isr():
            self.high_watermark = mark
            self.node.cluster.on_committed(self.topic, self.index)
            self.kick_all()
            for watch in list(self.watchers):
                watch()
        self._serve()

    def _serve(self) -> None:
        """Answer the appends that all in-sync replicas have (Partition.checkEnoughReplicasReachOffset)."""
        done = [w for w in self.waiting if w.end <= self.high_watermark]
        if done:
            self.waiting = [w for w in self.waiting if w.end > self.high_watermark]
            for w in done:
                few = len(self.state.isr) < w.min_isr
                self._finish(w, Err.NOT_ENOUGH_REPLICAS_AFTER_APPEND if few else Err.NONE)

    def kick_all(self) -> None:
        for n, f in self.followers.items():
            if not f.kicked and (f.end < self.log.end or f.high_watermark < self.high_watermark):
                self._kick(n, f)

    def _kick(self, n: int, f: Follower) -> None:
        f.kicked, f.kicked_ms = True, self.node.host.mono_ms()
        epoch = self.state.leader_epoch
        self.node.tell(n, lambda node: node.kicked(self, epoch))
        self.node.await_follower(n, self)

    def kick_again(self, n: int) -> None:
        """If the follower has not answered."""
        f = self.followers.get(n)
        if f is None or not f.kicked:
            return
        if self.node.host.mono_ms() - f.kicked_ms < KICK_AGAIN_MS / 2:
            self.node.await_follower(n, self)
        else:
            f.kicked = False
            self.kick_all()

    def acknowledged(self, n: int, epoch: int, end: int, high_watermark: int) -> None:
        """A follower has everything up to `end`."""
        f = self.followers.get(n)
        if f is None or epoch != self.state.leader_epoch:
            return
        f.kicked = False
        f.end, f.high_watermark = max(f.end, end), max(f.high_watermark, high_watermark)
        if f.end >= self.log.end:
            f.caught_up_ms = self.node.host.mono_ms()
        self._let_in(n)
        self._advance()
        self.kick_all()

    def _let_in(self, n: int) -> None:
        """Into the ISR, if it has caught up and lives."""
        f = self.followers[n]
        if n in self.maximal_isr or n not in self.node.image.alive:
            return
        if f.end >= max(self.high_watermark, self.epoch_start):
            self._ask(tuple(sorted((*self.state.isr, n), key=self.state.replicas.index)))

    def _ask(self, isr: tuple[int, ...]) -> None:
        """AlterPartition: one at a time."""
        if not self._asking_for:
            self._asking_for = isr
            self._send_ask(isr)

    def _send_ask(self, isr: tuple[int, ...]) -> None:
        """Again until there is an answer: while it is not known whether the controller has let somebody in, the high
        watermark waits for him."""
        p = self.state

        def still() -> bool:
            same = (p.version, p.leader_epoch) == (self.state.version, self.state.leader_epoch)
            return self.leads and same and self._asking_for == isr

        def told(now: Partition | None) -> None:
            if now is None or not still():
                return
            self._asking_for = ()
            if now.version > self.state.version:
                self.apply(now)
            self._watch_lag()

        def again() -> None:
            if still():
                self._send_ask(isr)

        self.node.alter_isr(self, p, isr, told)
        self.node.later(2 * KICK_AGAIN_MS, again)

    def _watch_lag(self) -> None:
        """A follower that has not caught up for replica.lag.time.max.ms leaves the ISR."""
        if self._lag_timer is not None or not self.leads:
            return
        if all(f.end >= self.log.end for n, f in self.followers.items() if n in self.state.isr):
            return
        lag_ms = self.node.settings.number("replica.lag.time.max.ms")

        def look() -> None:
            self._lag_timer = None
            if not self.leads:
                return
            at_ms = self.node.host.mono_ms()
            slow = {
                n
                for n, f in self.followers.items()
                if n in self.state.isr and f.end < self.log.end and at_ms - f.caught_up_ms > lag_ms
            }
            if slow:
                self._ask(tuple(n for n in self.state.isr if n not in slow))
            self._watch_lag()

        self._lag_timer = self.node.later(lag_ms / 2, look)

    # ---- following ------------------------------------------------------------------------------------------
    def fetch(self, leader: Replica, epoch: int) -> bool:
        """Copy what the leader has. False if one of the two knows of a newer leader."""
        if self.leads or epoch != self.state.leader_epoch or leader.state.leader_epoch != epoch or not leader.leads:
            return False
        self.log.agree_with(leader.log)
        for batch in leader.log.batches[leader.log.position(self.log.end) :]:
            if batch.base >= self.log.end:
                self.log.take(batch)
        self.log.end = max(self.log.end, leader.log.end)
        self.high_watermark = min(max(self.high_watermark, leader.high_watermark), self.log.end)
        return True
