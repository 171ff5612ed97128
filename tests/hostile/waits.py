"""Measures a request's time, and whose work that was. As a script it is a well-behaved client in its own process.

    python -I -S tests/hostile/waits.py FD PID FRAME

It sends the frame again and again over the connection that it inherits, one request at a time, until its stdin ends.
Then it prints its waits. `PID`: the process whose first thread runs the loop that answers. A process of its own has no
other thread that holds its interpreter, and it imports next to nothing, so that dozens of them start in a run.

The kernel tells of each thread how long it had a processor, and how long it was ready and had none (schedstat), and in
steps of 10 ms how long a virtual machine had none itself (`steal` of /proc/stat, which schedstat counts as work). So a
wait is known in three parts, of which a busy machine makes only one longer:

    worked   the loop had a processor: it worked for this client, or for others first
    queued   the loop, or the client itself, was ready and had none: other processes or machines had them all
    idle     neither: the broker was asked, or the request lay somewhere and nobody worked
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from typing import NamedTuple

PACE_S = 0.002
SILENCE_S = 60.0
"""An answer that does not come by then will not come."""
STEAL = 8
"""Field of the first line of /proc/stat."""
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Wait(NamedTuple):
    """Milliseconds. `worked` and `queued` may overlap where the client had its answer and no processor to read it."""

    wall: float
    worked: float
    queued: float

    @property
    def less_queued(self) -> float:
        """Returns the wait without the time in which other processes had the processor."""
        return max(0.0, self.wall - self.queued)

    @property
    def work(self) -> float:
        """For so long the loop worked while the client had no answer. What it worked after that is not counted."""
        return min(self.worked, self.less_queued)

    @property
    def idle(self) -> float:
        return max(0.0, self.less_queued - self.worked)


class Meter:
    """Measures waits of the thread that makes it. Raises OSError when the process has ended."""

    def __init__(self, pid: int) -> None:
        self._loop = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        self._own = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._machine = os.open("/proc/stat", os.O_RDONLY)
        self._began = (0, 0, 0)

    def begin(self) -> None:
        self._began = self._read()

    def end(self) -> Wait:
        wall, worked, queued = ((now - was) / 1e6 for now, was in zip(self._read(), self._began, strict=True))
        return Wait(wall, worked, queued)

    def close(self) -> None:
        os.close(self._loop)
        os.close(self._own)
        os.close(self._machine)

    def _read(self) -> tuple[int, int, int]:
        """Nanoseconds: now, worked, queued."""
        worked, loop = os.pread(self._loop, 64, 0).split()[:2]
        own = os.pread(self._own, 64, 0).split()[1]
        stolen = int(os.pread(self._machine, 256, 0).split(None, STEAL + 1)[STEAL]) * TICK_NS
        return time.monotonic_ns(), int(worked), int(loop) + int(own) + stolen


class Client:
    """One request at a time, each `PACE_S` after the answer to the one before. `other`: how many responses were not the
    same as the first one: a steady member's are, byte by byte."""

    def __init__(self, sock: socket.socket, frame: bytes) -> None:
        self.sock, self.frame = sock, frame
        self.first = b""
        self.other = 0

    def once(self) -> None:
        """Raises OSError."""
        self.sock.sendall(self.frame)
        buf = b""
        while len(buf) < 4 or len(buf) < 4 + int.from_bytes(buf[:4], "big"):
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionResetError("the bystander was closed")
            buf += data
        self.first = self.first or buf
        self.other += buf != self.first

    def beat_until_stopped(self, pid: int) -> dict[str, object]:
        waits: list[Wait] = []
        broken = ""
        try:
            meter = Meter(pid)
            while not select.select([sys.stdin], [], [], PACE_S)[0]:
                meter.begin()
                self.once()
                waits.append(meter.end())
        except OSError as exc:
            broken = repr(exc)
        return {"waits": waits, "other": self.other, "broken": broken}


def main() -> None:
    fd, pid, frame = sys.argv[1:]
    with socket.socket(fileno=int(fd)) as sock:
        sock.settimeout(SILENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(json.dumps(Client(sock, bytes.fromhex(frame)).beat_until_stopped(int(pid))))


if __name__ == "__main__":
    main()
