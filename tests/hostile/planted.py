"""A server with a planted fault, to see that bystanders notice it: `python -m tests.hostile.planted FAULT`.

It prints its port. Each frame is answered with itself. Frames that begin with "A" are an attacker's, and each takes
`COST_S` of CPU, unless the fault is another one:

    none    others have their turn between two requests
    holds   a request of the attacker holds the loop for 100 ms
    queue   requests are handled in the order in which they came, whoever has sent them
    parks   everybody is answered a second later, in which nobody works
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from typing import ClassVar

COST_S, HELD_S, PARKED_S = 0.000_5, 0.1, 1.0
FAULTS = ("none", "holds", "queue", "parks")


def work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Server(asyncio.Protocol):
    fault = "none"
    line: ClassVar[deque[tuple[Server, bytes]]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.held = b""
        self.own: deque[bytes] = deque()

    def data_received(self, data: bytes) -> None:
        self.held += data
        while len(self.held) >= 4 and len(self.held) >= (end := 4 + int.from_bytes(self.held[:4], "big")):
            frame, self.held = self.held[:end], self.held[end:]
            self._came(frame)

    def _came(self, frame: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self.fault == "parks":
            loop.call_later(PARKED_S, self.transport.write, frame)
        elif self.fault == "queue":
            self.line.append((self, frame))
            if len(self.line) == 1:
                loop.call_soon(self._first_of_all)
        else:
            self.own.append(frame)
            if len(self.own) == 1:
                loop.call_soon(self._first_of_own)

    def _first_of_all(self) -> None:
        of, frame = self.line[0]
        of.answer(frame)
        self.line.popleft()
        if self.line:
            asyncio.get_running_loop().call_soon(self._first_of_all)

    def _first_of_own(self) -> None:
        self.answer(self.own.popleft())
        if self.own:
            asyncio.get_running_loop().call_soon(self._first_of_own)

    def answer(self, frame: bytes) -> None:
        if frame[4:5] == b"A":
            work(HELD_S if self.fault == "holds" else COST_S)
        if not self.transport.is_closing():
            self.transport.write(frame)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    Server.fault = sys.argv[1]
    asyncio.run(serve())
