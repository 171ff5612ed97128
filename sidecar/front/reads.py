"""Where bytes are put that come from clients and from the broker: one buffer for all sockets of the loop.

How much is read at once is how much a connection may have to keep of which nobody knew before. So it is little where
all connections together keep half of what they may: that they go on, and keep no more, costs processor time instead.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

READ_BYTES, LITTLE_BYTES = 1 << 16, 1 << 12
"""At once; a longer read makes no stream faster. Where memory is tight."""


class Tight(Protocol):
    @property
    def tight(self) -> bool: ...


class Reads:
    def __init__(self, *memories: Tight) -> None:
        self._memories = memories
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._little = self.buffer[:LITTLE_BYTES]

    def room(self) -> memoryview:
        for memory in self._memories:
            if memory.tight:
                return self._little
        return self.buffer


class Reader(asyncio.BufferedProtocol):
    """A connection whose bytes come by way of `reads`."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reads.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._reads.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError
