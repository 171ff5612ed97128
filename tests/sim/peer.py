"""The behaviour that members of both protocols share: one request at a time, repeated when no answer comes, on another
connection if the first one breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary.errors import Code
from tests.sim.front import Ask, Front
from tests.sim.world import Violation, World

TIMEOUT_MS = 1_500
ASK_ELSEWHERE = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE)
Place = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(kw_only=True, eq=False)
class Peer:
    world: World
    fronts: Sequence[Front]
    check: Callable[[str], None]
    """To be called with the group when the member has taken a new assignment."""
    group_id: str
    member_id: str
    instance_id: str | None = None
    node: int = 0
    epoch: int = 0
    """The member epoch, or the generation."""
    leaving: int = 0
    ended: bool = False
    paused_until: int = 0
    """The time until which it reads and sends nothing."""
    busy_until: int = 0
    """The time until which it makes an assignment, or calls its rebalance listener; meanwhile it beats, as Java's
    clients do (KIP-62)."""
    held_ms: int = 0
    """The time at which it was given what it has."""
    waiting: int = 0
    tokens: int = 0
    sent_ms: int = 0
    patience_ms: int = TIMEOUT_MS
    """Milliseconds that it waits for the answer that is under way."""

    # ---- what it sends, and when -----------------------------------------------------------------------------
    def send_next(self) -> None:
        """Sends the request that is due."""
        raise NotImplementedError

    def answer_lost(self) -> None:
        """An answer may be lost, or the next one comes from another coordinator."""

    def drop_partitions(self) -> None:
        """Gives up all partitions."""

    def partitions(self) -> set[Place]:
        raise NotImplementedError

    @property
    def only_heartbeats(self) -> bool:
        """Whether the member has reached its target and sends nothing but heartbeats."""
        return True

    @property
    def held(self) -> int | None:
        """Generation of a classic member's last assignment."""
        return None

    def beat(self) -> None:
        if self.ended:
            return
        world = self.world
        world.sched.at(world.rng.randint(700, 1_300), self.beat)
        now = world.sched.now
        if world.quiet or now < self.paused_until or (self.waiting and now - self.sent_ms < self.patience_ms):
            return
        if self.waiting:
            self.answer_lost()
        self.send_next()

    def schedule_send(self) -> None:
        """Sends a request before the next heartbeat is due."""
        self.world.sched.at(self.world.rng.randint(1, 60), self._send_if_idle)

    def _send_if_idle(self) -> None:
        if not (self.ended or self.waiting or self.world.quiet or self.world.sched.now < self.paused_until):
            self.send_next()

    def leave(self, epoch: int) -> None:
        """Gives up all partitions; the next request leaves the group."""
        self.leaving, self.waiting = epoch, 0
        self.drop_partitions()

    # ---- requests and answers --------------------------------------------------------------------------------
    def ask(self, event: Event, on_answer: Callable[[Event, Answer], None], patience_ms: int = TIMEOUT_MS) -> None:
        self.tokens += 1
        self.waiting = token = self.tokens
        self.sent_ms, self.patience_ms = self.world.sched.now, patience_ms
        ask = Ask(
            event,
            lambda reply: self._receive(token, event, reply, on_answer),
            lambda: token == self.waiting,
            lambda: self._disconnected(token),
        )
        self.world.endings.asked((id(self), token), event)
        front = self.fronts[self.node]
        # One connection neither duplicates nor reorders; what it had under way ends with it. So a request is seen twice
        # when its answer was lost and the member repeats it, and late only while the member waits for it.
        self.world.net(lambda: front.receive(ask), duplicate=False)
        if self.world.strikes(self.world.faults.hangs_up):
            self.world.sched.at(self.world.rng.randint(1, 300), lambda: self._connection_broken(token))

    def _connection_broken(self, token: int) -> None:
        if token == self.waiting and not self.ended:
            self.answer_lost()
            self.send_next()

    def _receive(self, token: int, event: Event, reply: Answer, on_answer: Callable[[Event, Answer], None]) -> None:
        self.world.endings.answered((id(self), token), reply)
        if self.world.endings.wrong:
            raise Violation(self.world.endings.wrong[0])
        self._answered(token, event, reply, on_answer)

    def _answered(self, token: int, event: Event, reply: Answer, on_answer: Callable[[Event, Answer], None]) -> None:
        if self.ended or token != self.waiting:
            return  # an answer to what it has given up waiting for
        wait_ms = self.paused_until - self.world.sched.now
        if wait_ms > 0:
            self.world.sched.at(wait_ms, lambda: self._answered(token, event, reply, on_answer))
        elif reply.code in ASK_ELSEWHERE:
            self._disconnected(token)
        else:
            self.waiting = 0
            on_answer(event, reply)

    def _disconnected(self, token: int) -> None:
        """Looks up the coordinator; the next request is a full one."""
        if token != self.waiting:
            return
        self.waiting = 0
        owner = self.world.owners[self.world.partition_of(self.group_id)]
        self.node = owner if owner >= 0 else (self.node + 1) % len(self.fronts)
        self.answer_lost()
