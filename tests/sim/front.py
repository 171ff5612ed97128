"""The front of one sidecar, which sees nothing but messages: it passes requests on, and answers a member's steady
heartbeat itself while a grant lasts.

The link to the coordinator keeps the order and loses nothing as long as both ends live. A front whose coordinator
crashed forgets all it was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sidecar.core.commands import Void
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.effects import TOUCH_MS, Grant, Reply
from tests.sim.world import World


@dataclass(slots=True)
class Ask:
    """One request on a client's connection. `connected`: whether the client still waits on that connection; `broken`:
    the connection is gone."""

    hb: ConsumerHeartbeat
    answer: Callable[[HeartbeatReply], None]
    connected: Callable[[], bool]
    broken: Callable[[], None]
    taken_ms: int = 0
    """When the coordinator got it."""
    lived_ms: int = 0
    """How long the coordinator had been of use by then."""
    behind: int = 0
    """The serial of the last batch that was written when its own turn had ended."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Until when the coordinator takes itself for the owner."""

    until_ms: int


@dataclass(slots=True)
class Granted:
    hb: ConsumerHeartbeat
    answer: HeartbeatReply
    grant: Grant
    given_ms: int
    """When the coordinator gave it."""
    touched_ms: int
    """When the coordinator heard last that the member lives."""


Message = tuple[Ask, Reply] | Void | Lease


class Behind(Protocol):
    """The process behind the front, which may be the front's own."""

    def stands_still_ms(self) -> int: ...
    def request(self, ask: Ask) -> None: ...
    def touch(self, group_id: str, member_id: str) -> None: ...
    def over_link(self, fn: Callable[[], None]) -> None: ...
    def answered_under_grant(self, granted: Granted) -> None:
        """For the checks: the front has answered now."""


class Front:
    def __init__(self, world: World, behind: Behind) -> None:
        self.world = world
        self.alive = True
        self._behind = behind
        self._inbox: deque[tuple[int, int, Message]] = deque()
        self._grants: dict[tuple[str, str], Granted] = {}
        self._lease_until_ms = 0

    def reset(self) -> None:
        """The link broke."""
        self._inbox.clear()
        self._grants.clear()
        self._lease_until_ms = 0

    # ---- from clients -------------------------------------------------------------------------------------
    def receive(self, ask: Ask) -> None:
        if not self.alive or not ask.connected():
            return
        wait_ms = 0 if self.world.link_ms else self._behind.stands_still_ms()
        if wait_ms > 0:  # it lies in the socket until the process goes on
            self.world.sched.at(wait_ms, lambda: self.receive(ask))
            return
        self._read()
        hb = ask.hb
        granted = self._grants.get((hb.group_id, hb.member_id))
        if granted is not None and granted.hb == hb and self.may_answer(granted):
            self._behind.answered_under_grant(granted)
            self.world.figures["answers under grants"] += 1
            answer, now_ms = granted.answer, self.world.sched.now
            if now_ms - granted.touched_ms >= TOUCH_MS:
                granted.touched_ms = now_ms
                self._behind.over_link(lambda: self._behind.touch(hb.group_id, hb.member_id))
            self.world.net(lambda: ask.answer(answer))
        else:
            self._behind.over_link(lambda: self._behind.request(ask))

    def may_answer(self, granted: Granted) -> bool:
        return self.world.sched.now < granted.grant.until_ms and self.world.sched.now < self._lease_until_ms

    # ---- from the coordinator -----------------------------------------------------------------------------
    def from_coordinator(self, message: Message) -> None:
        """It arrives after the link's delay; what is no answer is looked at when the next request comes."""
        sent_ms = self.world.sched.now
        self._inbox.append((sent_ms + self.world.link_ms, sent_ms, message))
        if isinstance(message, tuple):
            ask, reply = message
            assert isinstance(reply.answer, HeartbeatReply)
            answer = reply.answer
            self.world.net(lambda: ask.answer(answer), later_ms=self.world.link_ms)

    def _read(self) -> None:
        inbox, now_ms = self._inbox, self.world.sched.now
        while inbox and inbox[0][0] <= now_ms:
            came_ms, sent_ms, message = inbox.popleft()
            if isinstance(message, Lease):
                self._lease_until_ms = message.until_ms
            elif isinstance(message, Void):
                self.withdraw(message)
            else:
                ask, reply = message
                if reply.grant is not None:
                    assert isinstance(reply.answer, HeartbeatReply)
                    key = (ask.hb.group_id, ask.hb.member_id)
                    self._grants[key] = Granted(ask.hb, reply.answer, reply.grant, sent_ms, came_ms)

    def withdraw(self, void: Void) -> None:
        self._grants = {key: g for key, g in self._grants.items() if key[0] not in void.groups}
