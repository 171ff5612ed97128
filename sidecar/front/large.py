"""Limits the number of large requests and answers that are worked on at a time, from all clients together.

A request of 160 KB becomes 20 MB of objects while its handler works and waits for the broker. So only a few have a
place at a time, and the others wait as bytes, which `memory` counts. Addresses take turns: an address that sends many
large requests waits behind its own. Between two requests that begin, the loop turns, since reading one may take some
time: this sidecar's own heartbeats must leave, or it would lose its partitions.

A small request may have a large answer (`ALONE` in wire/apis.py), which takes as much while it is made. It has a place
from its first pause on.

A request with a place never waits for a client. It begins when all requests before it on its connection are answered,
and the broker's answers to its handler are read even if the client reads nothing (flow_control.py).

A request that waits for other members (JoinGroup, SyncGroup, heartbeats that wait for an assignor) gives its place back
meanwhile: the other members might never get one. One that waits for another broker or for the coordinator is parked: if
one broker hangs, large requests for the others go on. It keeps its objects meanwhile, so only some are parked, and the
next ones keep their places. A parked request needs a place again from its first pause on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from sidecar.api.slices import SMALL_BYTES

LARGE_BYTES = SMALL_BYTES
"""Longest request that is read in one piece; a longer one is read in slices."""


class Place(Enum):
    WORKS = auto()
    PARKED = auto()


class Sender(Protocol):
    """The flow of a session. `place`: that of its large request or answer; None: it has none."""

    place: Place | None
    waits_for_place: int

    @property
    def host(self) -> str: ...

    def adjust(self) -> None: ...


class LargeRequests:
    """Large requests of all sessions: at most `at_a_time` are worked on, and `parked_max` parked."""

    def __init__(self, at_a_time: int, pauses: dict[str, int], parked_max: int = 0) -> None:
        self.at_a_time, self._parked_max = at_a_time, parked_max
        self._pauses = pauses
        self.handled = self.parked = 0
        self._waiting: dict[str, dict[Sender, Callable[[], None]]] = {}
        """Senders that wait and how each goes on, by address; the address whose turn is next comes first."""
        self._turns = False
        """Whether the next turn is scheduled; no request begins before it."""

    def begins(self, sender: Sender, size: int, go_on: Callable[[], None]) -> bool:
        """Returns whether the sender's request, of which `size` bytes are kept, is worked on now. If not, `go_on` is
        called when its turn has come, or when its client has gone."""
        if sender.place is Place.WORKS:
            return True
        if self._turns or self.handled >= self.at_a_time:
            self._waiting.setdefault(sender.host, {})[sender] = go_on
            sender.waits_for_place = size
            self._pauses["large"] += 1
            return False
        self._begin(sender)
        return True

    def park(self, sender: Sender) -> None:
        """Gives the place to others while the sender's request waits for another broker or for the coordinator."""
        if sender.place is Place.WORKS and self.parked < self._parked_max:
            sender.place = Place.PARKED
            self.handled -= 1
            self.parked += 1
            self._turn_soon()

    def ended(self, sender: Sender) -> None:
        """Gives back the place of a sender whose request is answered, never will be, or waits for other members."""
        if sender.place is Place.WORKS:
            self.handled -= 1
            self._turn_soon()
        elif sender.place is Place.PARKED:
            self.parked -= 1
        sender.place = None
        own = self._waiting.get(sender.host)
        if own is not None and sender in own:
            sender.waits_for_place = 0
            go_on = own.pop(sender)
            if not own:
                del self._waiting[sender.host]
            go_on()

    def _begin(self, sender: Sender) -> None:
        if sender.place is Place.PARKED:
            self.parked -= 1
        sender.place = Place.WORKS
        self.handled += 1
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._turns:
            self._turns = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turns = False
        if not self._waiting or self.handled >= self.at_a_time:
            return
        host = next(iter(self._waiting))
        own = self._waiting.pop(host)
        sender = next(iter(own))
        go_on = own.pop(sender)
        if own:
            self._waiting[host] = own  # behind the others
        sender.waits_for_place = 0
        self._begin(sender)
        go_on()
        sender.adjust()
