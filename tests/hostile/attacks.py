"""Clients that mean no good, or are broken. Each attack is a process of its own, so that it is nobody's bystander.

    python -m tests.hostile.attacks NAME --port PORT --seconds S [--frame HEX] [--user NAME] [--admin PORT] [--group ID]

It prints one line of JSON in the end: what it did, and how often the other side closed a connection. The attacks of
this module are floods, which need no more than a connection; those of outside.py and inside.py are requests that ask
for more than they look like, by callers with the rights of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict

import uvloop

from sidecar.wire.frames import request_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import produce as pr
from tests.hostile.inside import ALICE, BOB
from tests.hostile.outside import MALLORY, NOBODY
from tests.hostile.target import CHUNK, DATA, HOST, Attack, Done, Target, fetch, read_responses
from tests.hostile.unread import UNREAD

HALF_OPEN = 2_000
HOARD_BYTES = 60_000
"""Less than `limits.held_bytes`, which each connection may hold."""
DEPTH = 1_000
CROWD = 300
"""Connections, each of which sends as fast as it may."""
NO_READERS = 20
ABORT = struct.pack("ii", 1, 0)


def metadata(correlation: int) -> bytes:
    return request_frame(3, 9, correlation, "hostile", True, md.MetadataRequest(topics=[]).encode(9))


async def pipelined(t: Target, done: Done, request: Callable[[int], bytes]) -> None:
    """One connection, a thousand requests at a time, all of them read."""
    reader, writer = await t.connect(done)
    block = b"".join(request(i) for i in range(DEPTH))
    while t.goes_on:
        writer.write(block)
        done.sent += DEPTH
        await read_responses(reader, DEPTH, done)
    writer.close()


async def heartbeats(t: Target, done: Done) -> None:
    await pipelined(t, done, lambda i: t.frame)


async def strangers(t: Target, done: Done) -> None:
    """Heartbeats of members that nobody knows: each goes through the state machine and gets an error."""
    frames = []
    for i in range(DEPTH):
        req = ch.ConsumerGroupHeartbeatRequest(group_id="bench-h-strangers", member_id=f"nobody-{i}", member_epoch=5)
        frames.append(request_frame(68, 1, i, "hostile", True, req.encode(1)))
    await pipelined(t, done, frames.__getitem__)


async def deep_metadata(t: Target, done: Done) -> None:
    await pipelined(t, done, metadata)


async def deep_fetch(t: Target, done: Done) -> None:
    await pipelined(t, done, lambda i: fetch(DATA, 10_000, correlation=i))


async def deep_produce(t: Target, done: Done) -> None:
    """Produce requests with acks=0 to a topic that is not there: they get no response, only TCP holds them back."""
    data = pr.TopicProduceData(name="nowhere", partition_data=[pr.PartitionProduceData(index=0, records=b"x" * 100)])
    body = pr.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]).encode(9)
    block = request_frame(0, 9, 1, "hostile", True, body) * DEPTH
    while t.goes_on:
        _, writer = await t.connect(done)
        try:
            while t.goes_on:
                writer.write(block)
                await writer.drain()
                done.sent += DEPTH
        except ConnectionError:  # a broker closes a connection with an error that it cannot tell
            done.closed += 1
        writer.close()


async def crowd(t: Target, done: Done, block: bytes) -> None:
    """Each reads what it is answered, and has always more to send."""

    async def one() -> None:
        reader, writer = await t.connect(done)

        async def reads() -> None:
            while data := await reader.read(CHUNK):
                done.answered += len(data)

        reading = asyncio.create_task(reads())
        try:
            async with asyncio.timeout(t.left_s):
                while t.goes_on:
                    writer.write(block)
                    await writer.drain()
                    done.sent += len(block)
        except TimeoutError:
            pass
        except ConnectionError:
            done.closed += 1
        finally:
            writer.transport.abort()
            reading.cancel()

    await asyncio.gather(*(one() for _ in range(CROWD)))


async def many_heartbeats(t: Target, done: Done) -> None:
    await crowd(t, done, t.frame * DEPTH)


async def many_produce(t: Target, done: Done) -> None:
    """Large requests that pass, to a topic that is not there: the broker has no work with them."""
    data = pr.TopicProduceData(
        name="nowhere", partition_data=[pr.PartitionProduceData(index=0, records=b"x" * 100_000)]
    )
    body = pr.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]).encode(9)
    await crowd(t, done, request_frame(0, 9, 1, "hostile", True, body))


async def half_open(t: Target, done: Done) -> None:
    """Each connection announces a group request of 100 KB and sends a byte of it each second."""
    head = (100_000).to_bytes(4, "big") + t.frame[4:12]
    pairs = []
    for _ in range(HALF_OPEN):
        reader, writer = await t.connect(done)
        writer.write(head)
        pairs.append((reader, writer))
    while t.goes_on:
        for _, writer in pairs:
            if not writer.is_closing():
                writer.write(b"\0")
                done.sent += 1
        await asyncio.sleep(1)
    done.closed = sum(reader.at_eof() or writer.is_closing() for reader, writer in pairs)
    for _, writer in pairs:
        writer.transport.abort()


async def hoard(t: Target, done: Done) -> None:
    """Each connection announces a group request that it may well hold, and sends all of it but the end, bit by bit."""
    head, piece = (HOARD_BYTES - 4).to_bytes(4, "big") + t.frame[4:12], b"\0" * 1_000
    pairs = []
    for _ in range(HALF_OPEN):
        reader, writer = await t.connect(done)
        writer.write(head)
        pairs.append((reader, writer))
    for _ in range(HOARD_BYTES // len(piece) - 1):
        for _, writer in pairs:
            if not writer.is_closing():
                writer.write(piece)
                done.sent += len(piece)
        await asyncio.sleep(0)
    await asyncio.sleep(max(0.0, t.until - time.monotonic()))
    done.closed = sum(reader.at_eof() or writer.is_closing() for reader, writer in pairs)
    for _, writer in pairs:
        writer.transport.abort()


async def newcomers(t: Target, done: Done) -> None:
    """As many connections as can be that ask for the versions of all APIs, as clients do first, and are closed then."""
    hello = request_frame(18, 3, 1, "hostile", True, av.ApiVersionsRequest("hostile", "1").encode(3))

    async def one() -> None:
        while t.goes_on:
            reader, writer = await t.connect(done)
            writer.write(hello)
            try:
                async with asyncio.timeout(max(0.1, t.until - time.monotonic())):
                    await read_responses(reader, 1, done)
            except TimeoutError:
                continue
            except (ConnectionError, asyncio.IncompleteReadError):
                done.closed += 1
            finally:
                writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(50)))


async def connect_flood(t: Target, done: Done) -> None:
    """As many connects as one thread can make; each is reset at once."""
    loop = asyncio.get_running_loop()

    async def one() -> None:
        while t.goes_on:
            sock = socket.socket()
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, (HOST, t.port))
                done.opened += 1
            except OSError:
                done.failed += 1
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)  # no TIME_WAIT: ports would run out
            sock.close()

    await asyncio.gather(*(one() for _ in range(50)))


async def no_reader(t: Target, done: Done) -> None:
    """Connections that send requests with large answers, as long as they may, and read nothing."""

    async def one() -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (HOST, t.port))
        done.opened += 1
        block = (fetch(DATA, 1 << 20) + t.frame) * 100
        try:
            async with asyncio.timeout(max(0.0, t.until - time.monotonic())):
                while t.goes_on:
                    await loop.sock_sendall(sock, block)
                    done.sent += 200
        except TimeoutError:
            return
        except ConnectionError:
            done.closed += 1
        finally:
            sock.close()

    await asyncio.gather(*(one() for _ in range(NO_READERS)))


async def refused(t: Target, done: Done, first: bytes) -> None:
    """Ten connections at a time that send these bytes and wait for the end."""

    async def one() -> None:
        while t.goes_on:
            reader, writer = await t.connect(done)
            writer.write(first)
            sent = time.perf_counter()
            try:
                async with asyncio.timeout(max(0.1, t.until - time.monotonic())):
                    while await reader.read(65_536):
                        pass
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()
            done.closed += 1
            done.close_ms.append((time.perf_counter() - sent) * 1000)

    await asyncio.gather(*(one() for _ in range(10)))


async def tls_hello(t: Target, done: Done) -> None:
    await refused(t, done, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 500)


async def lying_length(t: Target, done: Done) -> None:
    """Four bytes: a frame of 2 GiB."""
    await refused(t, done, b"\x7f\xff\xff\xff")


async def array_claims(t: Target, done: Done) -> None:
    """An OffsetFetch whose array says it has two billion topics, of which none is there."""
    body = of.OffsetFetchRequest(group_id="managed-h", topics=[]).encode(5)
    lie = body[:-4] + b"\x7f\xff\xff\xff"
    await refused(t, done, request_frame(9, 5, 1, "hostile", False, lie))


async def array_full(t: Target, done: Done) -> None:
    """An OffsetFetch with about as many topics as a request may have, without name and partitions: nothing about it is
    wrong."""
    topics = [of.OffsetFetchRequestTopic("", []) for _ in range(24_000)]
    frame = request_frame(9, 5, 1, "hostile", False, of.OffsetFetchRequest("bench-h", topics).encode(5))
    reader, writer = await t.connect(done)
    while t.goes_on:
        writer.write(frame)
        done.sent += 1
        await read_responses(reader, 1, done)
    writer.close()


FLOODS: dict[str, Attack] = {
    "heartbeats": heartbeats,
    "strangers": strangers,
    "deep_metadata": deep_metadata,
    "deep_fetch": deep_fetch,
    "deep_produce": deep_produce,
    "many_heartbeats": many_heartbeats,
    "many_produce": many_produce,
    "half_open": half_open,
    "hoard": hoard,
    "connect_flood": connect_flood,
    "newcomers": newcomers,
    "no_reader": no_reader,
    "tls_hello": tls_hello,
    "lying_length": lying_length,
    "array_claims": array_claims,
    "array_full": array_full,
}
CALLERS: dict[str, dict[str, Attack]] = {"": NOBODY, "mallory": MALLORY, "alice": ALICE | UNREAD, "bob": BOB}
"""User -> the attacks that need no more than its rights; "" does not authenticate."""
ATTACKS = FLOODS | {name: attack for attacks in CALLERS.values() for name, attack in attacks.items()}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("name", choices=ATTACKS)
    ap.add_argument("--port", type=int, required=True)
    ap.add_argument("--seconds", type=float, default=5.0)
    ap.add_argument("--frame", default="", help="a heartbeat, in hexadecimal")
    ap.add_argument("--user", default="", help="who authenticates by SASL PLAIN; nobody unless given")
    ap.add_argument("--admin", type=int, default=0, help="port of the admin endpoint")
    ap.add_argument("--group", default="", help="a managed group of others")
    a = ap.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    done = Done()
    target = Target(a.port, a.seconds, bytes.fromhex(a.frame), a.user, a.admin, a.group)
    try:
        uvloop.run(ATTACKS[a.name](target, done))
    except (ConnectionError, asyncio.IncompleteReadError):  # whether others are served, too, is measured beside it
        done.failed += 1
    found = asdict(done)
    times = sorted(found.pop("close_ms"))
    found["close_p50_ms"] = round(times[len(times) // 2], 2) if times else None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
