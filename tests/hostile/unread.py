"""Attacks by clients that read nothing. What the kernel keeps for them, 1.4 MB each, is not the sidecar's. What the
broker does not read is the same and shows less: tests/front/test_limits.py has both without a kernel."""

from __future__ import annotations

import asyncio
import socket

from sidecar.wire.frames import SMALL_BYTES
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from tests.hostile.inside import OWN, TOPIC, caller, large_member
from tests.hostile.outside import names
from tests.hostile.target import (
    DATA,
    HOST,
    STRANGER,
    Attack,
    Done,
    Target,
    fetch,
    handshake,
    request,
    token,
)
from tests.security.raw import plain

CONNECTIONS = 300
"""Fewer than one address may have (effect.py), and enough for a look at what they take together."""
RECEIVES = 4_096
"""Bytes of a socket's own buffer: the kernel keeps little for whoever asks for little."""
WAIT_MS = 60_000
"""Milliseconds that a Fetch of an empty topic waits at the broker."""
ANSWERS = 4
"""Groups whose descriptions together are nearly `limits.answer_bytes`."""


async def deaf(t: Target, done: Done, first: bytes, again: bytes, connections: int = CONNECTIONS) -> None:
    """Opens connections that send `first` once and then `again` as often as possible, and read nothing."""
    loop = asyncio.get_running_loop()
    socks = []

    async def one() -> None:
        socks.append(sock := socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVES)
        sock.setblocking(False)
        sock.bind((STRANGER, 0))
        await loop.sock_connect(sock, (HOST, t.port))
        done.opened += 1
        try:
            if t.user:
                await loop.sock_sendall(sock, handshake() + token(plain(t.user)))
                for _ in range(2):
                    size = int.from_bytes(await _exactly(loop, sock, 4), "big")
                    await _exactly(loop, sock, size)
            await loop.sock_sendall(sock, first)
            while t.goes_on:
                await loop.sock_sendall(sock, again)
                done.sent += 1
        except (ConnectionError, EOFError):
            done.closed += 1

    tasks = [asyncio.create_task(one()) for _ in range(connections)]
    await asyncio.wait(tasks, timeout=t.left_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for sock in socks:
        sock.close()


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = await loop.sock_recv(sock, size - len(got))
        if not data:
            raise EOFError
        got += data
    return got


async def large_answers(t: Target, done: Done) -> None:
    """Each asks for a description of some MB, which the sidecar makes."""
    groups = names(ANSWERS, f"{OWN}answers-")
    async with caller(t, done) as me:
        for group in groups:
            await large_member(me, group)
    await deaf(t, done, b"", request(15, 5, dg.DescribeGroupsRequest(groups)), connections=100)


async def answers_behind_a_fetch(t: Target, done: Done) -> None:
    """Each has a Fetch wait at the broker, and asks behind it for as many coordinators as a small request names: their
    answers may not leave before that of the Fetch."""
    frame = request(10, 4, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=names(SMALL_BYTES // 25, OWN)))
    assert len(frame) < SMALL_BYTES
    await deaf(t, done, fetch(TOPIC, 1, WAIT_MS), frame)


async def records_that_nobody_reads(t: Target, done: Done) -> None:
    """Each fetches records as often as it may."""
    await deaf(t, done, b"", fetch(DATA, 1 << 20))


UNREAD: dict[str, Attack] = {
    "large_answers": large_answers,
    "answers_behind_a_fetch": answers_behind_a_fetch,
    "records_that_nobody_reads": records_that_nobody_reads,
}
