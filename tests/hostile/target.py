"""Helpers of attacks: the target of one, a count of what it did there, and the way of a caller to it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sidecar.wire.frames import request_frame
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.generated import sasl_handshake as sh
from sidecar.wire.primitives import put_uvarint
from tests.security.raw import AUTHENTICATE, HANDSHAKE, plain

HOST = "127.0.0.1"
STRANGER = "127.0.0.2"
"""The address from which attacks come: a share for each address is not the bystanders'."""
CHUNK = 1 << 16
DATA = "hostile-data"
"""A topic with 2 MB in its partition 0 (side.py)."""


@dataclass
class Done:
    """`opened`, `closed`: connections, and how many of them the other side closed; `sent`: requests or bytes that were
    sent; `answered`: responses; `close_ms`: from the last byte sent to the end of the connection, one for each."""

    opened: int = 0
    closed: int = 0
    failed: int = 0
    sent: int = 0
    answered: int = 0
    close_ms: list[float] = field(default_factory=list)


@dataclass
class Target:
    """`frame`: a heartbeat that is answered; `user`: the caller, "" for one that does not authenticate; `admin`: port
    of the admin endpoint; `group`: a managed group of others, whose name the caller knows."""

    port: int
    seconds: float
    frame: bytes
    user: str = ""
    admin: int = 0
    group: str = ""

    @cached_property
    def until(self) -> float:
        """The time begins with the first connection: an attack prepares its bytes before."""
        return time.monotonic() + self.seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    @property
    def left_s(self) -> float:
        return max(0.1, self.until - time.monotonic())

    async def connect(self, done: Done, port: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError."""
        until = self.until
        pair = await asyncio.open_connection(HOST, port or self.port, limit=1 << 22, local_addr=(STRANGER, 0))
        assert until
        done.opened += 1
        return pair

    async def login(self, done: Done) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of the caller. Raises OSError and IncompleteReadError."""
        reader, writer = await self.connect(done)
        if self.user:
            writer.write(handshake() + token(plain(self.user)))
            await read_frame(reader)
            answer = await read_frame(reader)
            if int.from_bytes(answer[4:6], "big"):
                raise RuntimeError(f"{self.user} is not let in")
        return reader, writer


def handshake() -> bytes:
    return request_frame(HANDSHAKE, 1, 1, "hostile", False, sh.SaslHandshakeRequest("PLAIN").encode(1))


def token(data: bytes) -> bytes:
    return request_frame(AUTHENTICATE, 1, 2, "hostile", False, sa.SaslAuthenticateRequest(data).encode(1))


def request(api_key: int, version: int, req: Any, flexible: bool = True, client_id: str = "hostile") -> bytes:
    return request_frame(api_key, version, 1, client_id, flexible, req.encode(version))


def fetch(topic: str, size: int, wait_ms: int = 0, least: int = 1, correlation: int = 1) -> bytes:
    """Fetch version 4 of so many bytes, from the beginning of partition 0."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, wait_ms, least, size, 0) + struct.pack(">ih", 1, len(name)) + name
    return request_frame(1, 4, correlation, "hostile", False, body + struct.pack(">iiqi", 1, 0, 0, size))


def with_long(frame: bytes, mark: str, text: bytes) -> bytes:
    """The frame with `text` in the place of the compact string `mark`, of any length: codecs stop at 32,767 bytes."""
    short, long = bytearray(), bytearray()
    put_uvarint(short, len(mark) + 1)
    put_uvarint(long, len(text) + 1)
    old = bytes(short) + mark.encode()
    assert frame.count(old) == 1
    body = frame[4:].replace(old, bytes(long) + text)
    return len(body).to_bytes(4, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def read_responses(reader: asyncio.StreamReader, count: int, done: Done) -> None:
    """An answer may have hundreds of MB, so nothing of it is kept."""
    for _ in range(count):
        left = int.from_bytes(await reader.readexactly(4), "big")
        while left:
            left -= len(await reader.readexactly(min(left, CHUNK)))
        done.answered += 1


async def send(t: Target, done: Done, frames: Iterator[bytes], read: bool) -> None:
    """One connection, until it is closed, the time is over or there are no frames any more. `read`: each request waits
    for the answer to the one before it; else answers are not read at all."""
    reader, writer = await t.login(done)
    try:
        async with asyncio.timeout(t.left_s):
            for frame in frames:
                writer.write(frame)
                await writer.drain()
                done.sent += 1
                if read:
                    await read_responses(reader, 1, done)
            if not read:
                await asyncio.sleep(t.left_s)
    finally:
        writer.transport.abort()


async def asks(
    t: Target, done: Done, frames: Callable[[], Iterable[bytes]], connections: int = 1, read: bool = True
) -> None:
    """Keeps `connections` open, each of which sends these frames one after the other, again and again."""

    async def one() -> None:
        while t.goes_on:
            try:
                await send(t, done, iter(frames()), read)
            except TimeoutError:
                return
            except (ConnectionError, asyncio.IncompleteReadError):
                done.closed += 1
                await asyncio.sleep(0.01)  # a connection that is refused at once is not the attack

    assert t.until
    await asyncio.gather(*(one() for _ in range(connections)))


Attack = Callable[[Target, Done], Any]


def asking(*frames: Callable[[], bytes], connections: int = 1, read: bool = True) -> Attack:
    """An attack that sends the same frames again and again; they are made before its time begins."""

    async def attack(t: Target, done: Done) -> None:
        made = [frame() for frame in frames]
        await asks(t, done, lambda: made, connections, read)

    return attack
