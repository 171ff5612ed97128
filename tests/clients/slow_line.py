"""A line to a broker on which requests of some APIs can be held back, as on a network that delivers late.

line = SlowLine(port_of_the_broker)
line.hold(Api.OFFSET_COMMIT)      requests of this API wait from now on
held = line.held                  those that wait
line.release()                    they go on, and `line.answers` has what the broker said, if anybody still listens
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

HEAD = struct.Struct(">ihhi")
"""Length, API, version, correlation id."""


@dataclass
class Held:
    api_key: int
    version: int
    frame: bytes
    answer: bytes = b""
    answered: threading.Event = field(default_factory=threading.Event)


class SlowLine:
    def __init__(self, broker_port: int) -> None:
        self.held: list[Held] = []
        self.port = 0
        self._broker_port = broker_port
        self._apis: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._go = asyncio.Event()
        self._go.set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._run(self._listen())

    def hold(self, *apis: int) -> None:
        async def begin() -> None:
            self._apis = set(apis)
            self.held = []
            self._go.clear()

        self._run(begin())

    def release(self) -> None:
        async def end() -> None:
            self._apis = set()
            self._go.set()

        self._run(end())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            writer.close()
            return
        waiting: dict[int, Held] = {}
        answers = asyncio.ensure_future(self._answers(back, writer, waiting))
        try:
            while True:
                head = await reader.readexactly(HEAD.size)
                size, api_key, version, correlation = HEAD.unpack(head)
                frame = head + await reader.readexactly(size + 4 - HEAD.size)
                if api_key in self._apis:
                    held = Held(api_key, version, frame)
                    waiting[correlation] = held
                    self.held.append(held)
                    await self._go.wait()
                forth.write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            forth.close()
            answers.cancel()

    async def _answers(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: dict[int, Held]
    ) -> None:
        try:
            while True:
                head = await back.readexactly(8)
                size, correlation = struct.unpack(">ii", head)
                frame = head + await back.readexactly(size - 4)
                held = waiting.pop(correlation, None)
                if held is not None:
                    held.answer = frame
                    held.answered.set()
                writer.write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
