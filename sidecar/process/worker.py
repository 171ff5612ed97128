"""A worker's end of the pipes to its parent (parent.py)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

CHUNK = 4096


class ParentEnd:
    """The worker's pipes. `go` is set when this worker may coordinate, `replaced` is True when another one listens in
    its place."""

    def __init__(self, parent: int, hears: int, says: int, restarts: int) -> None:
        self.restarts = restarts
        """Number of workers that died before this one."""
        self.go = asyncio.Event()
        self.replaced = False
        self._parent, self._read_fd, self._write_fd = parent, hears, says

    @classmethod
    def of(cls, told: str) -> ParentEnd:
        """Opens the pipes. `told`: the last argument of a worker."""
        parent, hears, says, restarts = map(int, told.split(":"))
        for fd in (hears, says):
            os.set_inheritable(fd, False)
            os.set_blocking(fd, False)
        return cls(parent, hears, says, restarts)

    def watch(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Reads the parent's messages. `stop` is called when another worker listens in the place of this one."""
        loop.add_reader(self._read_fd, self._receive, stop)

    def send(self, text: str) -> None:
        """Sends without waiting: the pipe has room for hours of messages, and a parent that reads nothing has ended."""
        try:
            os.write(self._write_fd, text.encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            """Ignored: the parent gets SIGCHLD of this worker, or has ended."""

    def listening(self) -> None:
        """Reports that this worker takes clients and can coordinate at once."""
        self.send("LISTENING=1")

    def _receive(self, stop: Callable[[], None]) -> None:
        said = os.read(self._read_fd, CHUNK)
        if not said:  # where the system does not do it itself
            os.kill(os.getpid(), signal.SIGKILL)
        if b"replaced\n" in said:
            self.replaced = True
            stop()
        if b"go\n" in said:
            self.go.set()
