"""The requests that clients send: `--wire` puts a tap before each broker, which notes the version of every request of a
group.

A tap stands where a sidecar would, but it only passes bytes on. A client is known by its client id, which begins with
the name of its row.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterable

APIS = {
    10: "FindCoordinator",
    11: "JoinGroup",
    14: "SyncGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    68: "ConsumerGroupHeartbeat",
    8: "OffsetCommit",
    9: "OffsetFetch",
}
Seen = set[tuple[str, int, int]]
"""Client id, API key and version."""


class RecordingRoutes:
    """Forwards from port to port of this machine, and records in `seen` what passed."""

    def __init__(self, routes: Iterable[tuple[int, int]]) -> None:
        self._routes = list(routes)
        self.seen: Seen = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taps", daemon=True)

    def start(self) -> None:
        self._thread.start()
        for outside, inside in self._routes:
            asyncio.run_coroutine_threadsafe(self._listen(outside, inside), self._loop).result(timeout=10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    async def _listen(self, outside: int, inside: int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
                from_broker, to_broker = await asyncio.open_connection("127.0.0.1", inside)
                with contextlib.closing(to_broker):
                    back = asyncio.ensure_future(_pour(from_broker, writer))
                    try:
                        await self._requests(reader, to_broker)
                    finally:
                        back.cancel()

        await asyncio.start_server(connected, "127.0.0.1", outside)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            api, version, _, length = struct.unpack_from(">hhih", frame)
            if api in APIS:
                self.seen.add((frame[10 : 10 + max(length, 0)].decode(errors="replace"), api, version))
            writer.write(size + frame)
            await writer.drain()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what the broker says; when it says no more, the client shall know."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def versions(seen: Seen, clients: Iterable[str]) -> list[list[str]]:
    """Return a row for each client: its name, and the versions that it sent of each API."""
    found: dict[str, dict[int, set[int]]] = {}
    longest_first = sorted(clients, key=len, reverse=True)
    for sender, api, version in sorted(seen):
        client = next((c for c in longest_first if sender.startswith(c)), f"others, as {sender or 'without id'}")
        found.setdefault(client, {}).setdefault(api, set()).add(version)
    return [[c, *(",".join(map(str, sorted(apis.get(a, ())))) or "-" for a in APIS)] for c, apis in found.items()]
