"""The queue of one client's requests, in the order in which they are answered."""

from __future__ import annotations

from collections import deque

from sidecar.proxy.actions import Action, ToClient
from sidecar.proxy.internal import Marker, Passing
from sidecar.wire.apis import ALONE
from sidecar.wire.frames import SMALL_BYTES

TURN_SHIFT = 12
"""Bits: each 4 KiB of a handled request, and of its answer, count like one more request in the connection's turn."""


class Slot:
    """A request in `order`. Only a request that the sidecar handles gets its `reply` here."""

    __slots__ = ("marker", "reply")

    def __init__(self, marker: Marker | Passing | None = None) -> None:
        self.reply: bytes | None = None
        self.marker = marker  # it changes a passed answer on its way


class Token(Slot):
    """A SASL token without a header. Its answer has no header either and may be of any size."""

    __slots__ = ()


class Order(deque[Slot]):
    """Requests as the client has sent them; the head is the one to be answered next."""

    reply_bytes = 0
    """Bytes of replies that wait for the broker's answers to earlier requests."""
    waits = False
    """Whether the next request waits for these answers, too."""
    replied = False
    """Whether a reply of the sidecar's own waits to be sent. The session resets this when it sends it."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        """Requests that may still be looked at in this turn."""

    def holds_back(self, api_key: int, size: int) -> bool:
        """Returns whether the next request, which the sidecar handles, waits for the answers to those before it."""
        large = api_key in ALONE or size > SMALL_BYTES - 4 or self.reply_bytes > 0
        self.waits = large
        return large

    def due(self) -> list[Action]:
        """Returns the replies that leave now. They count in the connection's turn: that the client takes no more is
        seen only after the turn. While a passed response streams, its request is still the head."""
        out: list[Action] = []
        while self and self[0].reply is not None:
            reply = self.popleft().reply
            if reply:
                self.reply_bytes -= len(reply)
                self.left -= len(reply) >> TURN_SHIFT
                self.replied = True
                out.append(ToClient(reply))
        return out
