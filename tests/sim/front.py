"""The front of one sidecar, which sees nothing but messages: it passes requests on, and answers a member's steady
heartbeat itself while a grant lasts. What a grant allows, and when the coordinator must hear of it, is decided by the
sidecar's own code (front/steady.py).

The link to the coordinator keeps the order and loses nothing as long as both ends live. A front whose coordinator
crashed forgets all messages that it got.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sidecar.core.classic.events import ClassicHeartbeat
from sidecar.core.runtime.events import Answer, Event
from sidecar.front.steady import Grants, Steady, touch_due
from sidecar.link.messages import Lease, Reply, Void
from tests.sim.world import FOR_EVER_MS, World

CONSUMER_API, CLASSIC_API = 68, 12
VERSION = 1
"""Version of the heartbeats' requests."""


@dataclass(slots=True)
class Ask:
    """One request on a client's connection. `connected`: whether the client still waits on that connection; `broken`:
    the connection is gone."""

    event: Event
    answer: Callable[[Answer], None]
    connected: Callable[[], bool]
    broken: Callable[[], None]
    taken_ms: int = 0
    """The time at which the coordinator got it."""
    lived_ms: int = 0
    """Milliseconds for which the coordinator had been of use by then."""
    owner_epoch: int = -1
    """The coordinator's owner epoch, if it served the partition when the request's own turn had ended."""
    behind: int = 0
    """The serial of the last batch with a record of its group that was written when its own turn had ended."""


@dataclass(frozen=True, slots=True)
class Granted:
    """An answer that may be given again to the same request."""

    event: Event
    member_id: str
    answer: Answer
    steady: Steady
    given_ms: int
    """The time at which the coordinator gave it."""


Message = tuple[Ask, Reply] | Void | Lease


class Behind(Protocol):
    """The process behind the front, which may be the front's own."""

    def stands_still_ms(self) -> int: ...
    def request(self, ask: Ask) -> None: ...
    def touch(self, group_id: str, member_id: str) -> None: ...
    def over_link(self, fn: Callable[[], None]) -> None: ...
    def answered_under_grant(self, granted: Granted, touched: bool) -> None:
        """Called for the checks when the front answers under a grant. `touched`: it also informs the coordinator."""


class Front:
    def __init__(self, world: World, behind: Behind) -> None:
        self.world = world
        self.alive = True
        self._behind = behind
        self._inbox: deque[tuple[int, int, Message]] = deque()
        self._grants = Grants()
        self._granted: dict[tuple[str, str], Granted] = {}

    def reset(self) -> None:
        """The link broke."""
        self._inbox.clear()
        self._grants.void_all()
        self._granted.clear()

    # ---- from clients -------------------------------------------------------------------------------------
    def receive(self, ask: Ask) -> None:
        if not self.alive or not ask.connected():
            return
        wait_ms = 0 if self.world.link_ms else self._behind.stands_still_ms()
        if wait_ms > 0:  # it lies in the socket until the process goes on
            self.world.sched.at(wait_ms, lambda: self.receive(ask))
            return
        self._read()
        event, now_ms = ask.event, self.world.sched.now
        granted = self._granted.get((event.group_id, getattr(event, "member_id", "")))
        if granted is not None and granted.event == event and self._allows(granted, now_ms):
            touched = touch_due(granted.steady, now_ms)
            self._behind.answered_under_grant(granted, touched)
            self.world.figures["answers under grants"] += 1
            if touched:
                self._behind.over_link(lambda: self._behind.touch(event.group_id, granted.member_id))
            answer = granted.answer
            self.world.net(lambda: ask.answer(answer))
        else:
            self._behind.over_link(lambda: self._behind.request(ask))

    def _allows(self, granted: Granted, now_ms: int) -> bool:
        return self._grants.allows(granted.steady, _api(granted.event), VERSION, now_ms)

    # ---- from the coordinator -----------------------------------------------------------------------------
    def from_coordinator(self, message: Message) -> None:
        """Takes a message, which arrives after the link's delay; everything but an answer is looked at when the next
        request comes."""
        sent_ms = self.world.sched.now
        self._inbox.append((sent_ms + self.world.link_ms, sent_ms, message))
        if isinstance(message, tuple):
            ask, reply = message
            answer = reply.answer
            self.world.net(lambda: ask.answer(answer), later_ms=self.world.link_ms)

    def _read(self) -> None:
        inbox, now_ms = self._inbox, self.world.sched.now
        while inbox and inbox[0][0] <= now_ms:
            came_ms, sent_ms, message = inbox.popleft()
            if isinstance(message, Lease):
                self._grants.lease_until_ms = message.until_ms
            elif isinstance(message, Void):
                self._grants.void(message.groups)
            else:
                ask, reply = message
                if reply.grant is not None:
                    grant, event = reply.grant, ask.event
                    steady = self._grants.remember(grant, _api(event), VERSION, FOR_EVER_MS, b"", came_ms)
                    granted = Granted(event, grant.member_id, reply.answer, steady, sent_ms)
                    self._granted[grant.group_id, grant.member_id] = granted


def _api(event: Event) -> int:
    return CLASSIC_API if type(event) is ClassicHeartbeat else CONSUMER_API
