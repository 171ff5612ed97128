"""A member as real clients are: one heartbeat under way, said again when no answer comes; it gives partitions up when
told, and joins anew when it is fenced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.errors import Code
from sidecar.core.records import Partitions
from tests.sim.front import Ask, Front
from tests.sim.world import World

TIMEOUT_MS = 1_500
ASK_ELSEWHERE = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Client:
    world: World
    fronts: Sequence[Front]
    check: Callable[[str], None]
    """To be called with the group when the member has taken a new assignment."""
    group_id: str
    member_id: str
    names: tuple[str, ...] | None
    regex: str | None
    instance_id: str | None = None
    node: int = 0
    terse: bool = False
    """It reports what it owns only when that has changed, as the Java client does."""
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)
    said: Partitions | None = None
    """What it owns as the coordinator knows it."""
    leaving: int = 0
    gone: bool = False
    waiting: int = 0
    tokens: int = 0
    sent_ms: int = 0
    full: bool = False
    """After an answer that may be lost the next request says everything, as Kafka's clients do."""

    def beat(self) -> None:
        if self.gone:
            return
        self.world.sched.at(self.world.rng.randint(700, 1_300), self.beat)
        if self.world.quiet or (self.waiting and self.world.sched.now - self.sent_ms < TIMEOUT_MS):
            return
        self.full = self.full or self.waiting > 0
        self._send()

    def _send(self) -> None:
        self.tokens += 1
        self.waiting = token = self.tokens
        self.sent_ms = self.world.sched.now
        joining = self.epoch == 0 and not self.leaving
        full = joining or (self.full and not self.leaving)
        silent = self.leaving or (self.terse and not full and self.owned == self.said)
        hb = ConsumerHeartbeat(
            self.group_id,
            self.member_id,
            self.leaving or self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=5_000 if full else -1,
            topic_names=self.names if full else None,
            topic_regex=self.regex if full else None,
            owned={} if joining else None if silent else self.owned,
        )
        ask = Ask(
            hb,
            lambda reply: self._answer(token, hb, reply),
            lambda: token == self.waiting,
            lambda: self._disconnected(token),
        )
        front = self.fronts[self.node]
        # One connection neither duplicates nor reorders; what it had under way ends with it. So a request is seen twice
        # when its answer was lost and the member says it again, and late only while the member waits for it.
        self.world.net(lambda: front.receive(ask), duplicate=False)
        if self.world.strikes(self.world.faults.hangs_up):
            self.world.sched.at(self.world.rng.randint(1, 300), lambda: self._again(token))

    def _again(self, token: int) -> None:
        if token == self.waiting and not self.gone:
            self.full = True
            self._send()

    def _answer(self, token: int, hb: ConsumerHeartbeat, reply: HeartbeatReply) -> None:
        if self.gone or token != self.waiting:
            return  # an answer to what it has given up waiting for
        if reply.code in ASK_ELSEWHERE:
            self._disconnected(token)
            return
        self.waiting = 0
        self.full = False
        if self.leaving:
            self.gone = True
            return
        if reply.code:
            self.epoch, self.owned, self.said = 0, {}, None
            return
        self.epoch = reply.member_epoch
        if hb.owned is not None:
            self.said = hb.owned
        if reply.assignment is not None:
            self.owned = reply.assignment
        self.check(self.group_id)

    def _disconnected(self, token: int) -> None:
        """It asks for the coordinator, and says everything to whoever that is."""
        if token != self.waiting:
            return
        self.waiting = 0
        owner = self.world.owners[self.world.partition_of(self.group_id)]
        self.node = owner if owner >= 0 else (self.node + 1) % len(self.fronts)
        self.full = True

    def leave(self, epoch: int) -> None:
        """It gives up all that it has, and then says so."""
        self.leaving = epoch
        self.waiting, self.owned = 0, {}

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}
