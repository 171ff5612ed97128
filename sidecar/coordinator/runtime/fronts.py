"""The connected fronts, and the way of answers to them: a token is the front's own token and, in its last bits, the
front's number."""

from __future__ import annotations

from sidecar.core.runtime.effects import Reply
from sidecar.link.messages import AskAccess, GroupRules, Lease, View, Void
from sidecar.link.ports import FrontEnd

FRONT_BITS = 16
FRONT_MASK = (1 << FRONT_BITS) - 1


def front_of(token: int) -> int:
    return token & FRONT_MASK


class Fronts:
    def __init__(self) -> None:
        self.connected: dict[int, FrontEnd] = {}
        """Number -> front."""
        self._numbers: dict[FrontEnd, int] = {}
        self._next = 0

    def add(self, front: FrontEnd) -> None:
        # The number of a front that has just gone is not reused: answers to its tokens may still be under way.
        number = self._next
        while number in self.connected:
            number = (number + 1) % (1 << FRONT_BITS)
        self._next = (number + 1) % (1 << FRONT_BITS)
        self.connected[number] = front
        self._numbers[front] = number

    def remove(self, front: FrontEnd) -> int:
        """Removes a front; returns its number."""
        number = self._numbers.pop(front)
        del self.connected[number]
        return number

    def token(self, front: FrontEnd, own: int) -> int:
        """Returns the token for a front's own token. Raises KeyError if the front is not connected."""
        return own << FRONT_BITS | self._numbers[front]

    def answer(self, reply: Reply) -> None:
        """Sends an answer to its front, and drops it if the front's connection has closed."""
        front = self.connected.get(front_of(reply.token))
        if front is not None:
            reply.token >>= FRONT_BITS
            front.from_coordinator(reply)

    def broadcast(self, message: Void | View | Lease | GroupRules) -> None:
        for front in self.connected.values():
            front.from_coordinator(message)

    def ask_access(self, token: int, topics: frozenset[str]) -> bool:
        """Asks the broker, on the connection of this request, which topics its client may see. Returns False if the
        front is gone."""
        front = self.connected.get(front_of(token))
        if front is None:
            return False
        front.from_coordinator(AskAccess(token >> FRONT_BITS, topics))
        return True
