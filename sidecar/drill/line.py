"""TCP lines between processes of this machine that can be cut: then sent bytes stay in the line, no close passes, and
new connections are accepted and never answered. When the line is mended everything goes on from where it was.

A cut is like a network that loses all packets of a host for a while, except that a connection can still be opened, as
with the kernel of a suspended host. The client id of a connection's first request shows its host.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any

CHUNK_BYTES = 65_536
STEP_S = 10.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, as the kernel does for a port without a listener."""
PING = re.compile(rb"ping from (sidecar-\d+)")
HEAD = struct.Struct(">ihhih")
"""Size, API, version, correlation id, length of the client id."""


@dataclass(frozen=True)
class Route:
    """A line from `port` to `target`; `host`: the number of the target's host."""

    host: int
    port: int
    target: int


@dataclass(frozen=True)
class Wire:
    """A connection: host and port of its target, and the client id of its first request, "" before that."""

    to_host: int
    to_port: int
    client_id: str


Cut = Callable[[Wire], bool]
"""Returns whether a connection must be silent."""


def client_id_of(chunk: bytes) -> str:
    """Return the client id of the request that begins here, or "" if it is incomplete. The pings of sidecars are no
    requests, but name their sidecar, too."""
    if pinging := PING.match(chunk):
        return pinging[1].decode()
    if len(chunk) < HEAD.size:
        return ""
    length = HEAD.unpack_from(chunk)[4]
    return chunk[HEAD.size : HEAD.size + max(0, length)].decode(errors="replace")


class _Connection:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.flows = asyncio.Event()
        self.flows.set()

    def obey(self, cut: Cut | None) -> bool:
        """Silence the connection, or let it flow; return whether it is silent."""
        silent = cut is not None and cut(self.wire)
        if silent:
            self.flows.clear()
        else:
            self.flows.set()
        return silent


class Lines:
    """A thread that passes bytes along all routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = list(routes)
        self._cut: Cut | None = None
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="lines", daemon=True)

    def start(self) -> Lines:
        self._thread.start()
        for route in self._routes:
            self._run(self._listen(route))
        return self

    def stop(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def cut(self, rule: Cut) -> list[Wire]:
        """Silence all connections that `rule` names, present and future ones. Return the present ones."""

        async def begin() -> list[Wire]:
            self._cut = rule
            return [conn.wire for conn in self._open if conn.obey(rule)]

        silent: list[Wire] = self._run(begin())
        return silent

    def mend(self) -> None:
        async def end() -> None:
            self._cut = None
            for conn in self._open:
                conn.obey(None)

        self._run(end())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STEP_S)

    async def _listen(self, route: Route) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(route, reader, writer))
            self._tasks.add(task)  # a loop keeps no task alive
            task.add_done_callback(self._tasks.discard)

        self._servers.append(await asyncio.start_server(connected, "127.0.0.1", route.port, limit=CHUNK_BYTES))

    async def _serve(self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = _Connection(Wire(route.host, route.target, ""))
        conn.obey(self._cut)
        self._open.add(conn)
        try:
            await conn.flows.wait()
            await self._join(conn, reader, writer)
        finally:
            self._open.discard(conn)
            writer.close()

    async def _join(self, conn: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", conn.wire.to_port, limit=CHUNK_BYTES)
        except OSError:
            _reset(writer)
            return
        pumps = [asyncio.ensure_future(self._pump(conn, reader, forth, True))]
        pumps.append(asyncio.ensure_future(self._pump(conn, back, writer, False)))
        try:
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            forth.close()

    async def _pump(
        self, conn: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: bool
    ) -> None:
        """Pass bytes on, and then the close. `asks`: whether this side sends requests."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                if asks and not conn.wire.client_id:
                    conn.wire = replace(conn.wire, client_id=client_id_of(data))
                    conn.obey(self._cut)
                await conn.flows.wait()
                writer.write(data)
                await writer.drain()
            await conn.flows.wait()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            await conn.flows.wait()
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
