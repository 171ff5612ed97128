"""The buffer for bytes from clients and from the broker: one for all sockets of the loop.

A connection may have to keep all bytes of a read, which are counted only afterwards. So reads are short where all
connections together keep half of their limit: they go on and keep no more, at the cost of processor time. Reads are
also short when the time of this iteration of the loop is over (budget.py).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sidecar.front.budget import MUCH_BYTES, LoopBudget

READ_BYTES, LITTLE_BYTES = 1 << 16, 1 << 12
"""Bytes of one read; a longer one makes no stream faster. Bytes of one read where memory or time is tight."""


class Tight(Protocol):
    @property
    def tight(self) -> bool: ...


class Reads:
    def __init__(self, *memories: Tight) -> None:
        self._memories = memories
        self.budget = LoopBudget()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._little = self.buffer[:LITTLE_BYTES]

    def room(self) -> memoryview:
        if self.budget.exhausted:
            return self._little
        for memory in self._memories:
            if memory.tight:
                return self._little
        return self.buffer


class Reader(asyncio.BufferedProtocol):
    """A connection whose bytes come by way of `reads`."""

    transport: asyncio.Transport | None = None
    stopped = False
    """Whether flow_control.py has paused reading."""
    waits_for_others = False
    """Whether reading is paused until other connections have had their turn."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._budget = reads.budget

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reads.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._reads.buffer[:nbytes]))
        if nbytes > MUCH_BYTES:
            budget = self._budget
            budget.count_work()
            if budget.exhausted and nbytes >= LITTLE_BYTES:  # there may be more
                self._wait_for_others()

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError

    def _wait_for_others(self) -> None:
        transport = self.transport
        if transport is not None and not (self.stopped or self.waits_for_others or transport.is_closing()):
            self.waits_for_others = True
            transport.pause_reading()
            self._budget.defer(self._read_on)

    def _read_on(self) -> None:
        self.waits_for_others = False
        transport = self.transport
        if transport is not None and not self.stopped and not transport.is_closing():
            transport.resume_reading()

    def stop_reading(self, stop: bool) -> None:
        """Pauses reading, or resumes it."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.stopped = stop
        if not self.waits_for_others:
            transport.pause_reading() if stop else transport.resume_reading()
