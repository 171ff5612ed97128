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

    def __init__(self, parent: int, read_fd: int, write_fd: int, restarts: int) -> None:
        self.restarts = restarts
        """Number of workers that died before this one."""
        self.go = asyncio.Event()
        self.replaced = False
        self._parent, self._read_fd, self._write_fd = parent, read_fd, write_fd

    @classmethod
    def of(cls, argument: str) -> ParentEnd:
        """Opens the pipes. `argument`: the last argument of a worker."""
        parent, read_fd, write_fd, restarts = map(int, argument.split(":"))
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)
            os.set_blocking(fd, False)
        return cls(parent, read_fd, write_fd, restarts)

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
        data = os.read(self._read_fd, CHUNK)
        if not data:  # where the system does not do it itself
            os.kill(os.getpid(), signal.SIGKILL)
        if b"replaced\n" in data:
            self.replaced = True
            stop()
        if b"go\n" in data:
            self.go.set()
