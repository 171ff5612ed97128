"""TCP lines between processes of this machine that can be cut: what is sent stays where it is, no end is told of, and
new connections are taken and never answered. When the line is mended everything goes on from where it was.

That is a network that loses all packets of a host for a while, except that a connection can still be opened; the kernel
of a host that is suspended does the same. Works on Linux, where `/proc` says whose a connection is.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CHUNK_BYTES = 65_536
STEP_S = 10.0
SOCKET = re.compile(r"socket:\[(\d+)\]")
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, as the kernel does where nobody listens."""


@dataclass(frozen=True)
class Route:
    """From `port` to `target`; `host`: the number of the host that the target is on."""

    host: int
    port: int
    target: int


@dataclass(frozen=True)
class Wire:
    """A connection: to which host and port there, and the name of the process that opened it, or "" if that is none of
    those known."""

    to_host: int
    to_port: int
    opened_by: str


Cut = Callable[[Wire], bool]
"""Whether a connection is silent."""


class _Connection:
    def __init__(self, source: Wire) -> None:
        self.wire = source
        self.flows = asyncio.Event()
        self.flows.set()


class Lines:
    """A thread that passes bytes along all routes. `processes` gives pid -> name of those who may open connections; it
    is asked when a line is cut, and for each connection that is opened while it is."""

    def __init__(self, routes: Iterable[Route], processes: Callable[[], Mapping[int, str]]) -> None:
        self._routes = list(routes)
        self._processes = processes
        self._cut: Cut | None = None
        self._open: dict[_Connection, tuple[int, int]] = {}
        """Connection -> the ports that it was opened from and to."""
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
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def cut(self, rule: Cut) -> int:
        """Silence all connections that `rule` names, those of now and those to come. Returns how many of now."""

        async def begin() -> int:
            self._cut = rule
            known = openers(self._processes())
            return sum(self._apply(conn, known.get(ports, "")) for conn, ports in self._open.items())

        return int(self._run(begin()))

    def mend(self) -> None:
        async def end() -> None:
            self._cut = None
            for conn in self._open:
                conn.flows.set()

        self._run(end())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STEP_S)

    def _apply(self, conn: _Connection, opened_by: str) -> bool:
        conn.wire = replace(conn.wire, opened_by=opened_by)
        silent = self._cut is not None and self._cut(conn.wire)
        if silent:
            conn.flows.clear()
        return silent

    async def _listen(self, route: Route) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            conn = _Connection(Wire(route.host, route.target, ""))
            ports = self._open[conn] = writer.get_extra_info("peername")[1], route.port
            if self._cut is not None:
                self._apply(conn, openers(self._processes()).get(ports, ""))
            try:
                await conn.flows.wait()
                await _join(conn, reader, writer, route.target)
            finally:
                del self._open[conn]
                writer.close()

        self._servers.append(await asyncio.start_server(connected, "127.0.0.1", route.port, limit=CHUNK_BYTES))


async def _join(conn: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
    try:
        back, forth = await asyncio.open_connection("127.0.0.1", target, limit=CHUNK_BYTES)
    except OSError:
        _reset(writer)
        return
    pumps = [asyncio.ensure_future(_pump(conn, reader, forth)), asyncio.ensure_future(_pump(conn, back, writer))]
    try:
        await asyncio.wait(pumps)
    finally:
        for pump in pumps:
            pump.cancel()
        forth.close()


async def _pump(conn: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what is said, and then its end."""
    try:
        while data := await reader.read(CHUNK_BYTES):
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


def openers(processes: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """Return, by local and remote port, which of these processes (pid -> name) has each TCP connection."""
    owners = {inode: name for pid, name in processes.items() for inode in _sockets(pid)}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, *_, inode = line.split()[:10]
            if inode in owners:
                found[_port(local), _port(remote)] = owners[inode]
    return found


def _port(address: str) -> int:
    return int(address.rsplit(":", 1)[1], 16)


def _sockets(pid: int) -> list[str]:
    """The inodes of a process's open sockets; none if it has ended."""
    inodes = []
    folder = f"/proc/{pid}/fd"
    try:
        for fd in os.listdir(folder):
            if found := SOCKET.fullmatch(os.readlink(f"{folder}/{fd}")):
                inodes.append(found[1])
    except FileNotFoundError:
        return inodes  # a file that was closed meanwhile, or the process has ended
    return inodes
