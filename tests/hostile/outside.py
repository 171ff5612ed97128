"""Attacks of callers without any right: `nobody` sends no SASL at all, `mallory` is authenticated and no more, and the
last ones come to the admin endpoint. Each is one of a review's findings, or was thought of here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

from sidecar.wire.frames import request_frame
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import put_uvarint
from tests.hostile.target import (
    Attack,
    Done,
    Target,
    asking,
    asks,
    handshake,
    request,
    token,
    with_long,
)
from tests.security.raw import plain

LONG = 40_000
"""Bytes of a string that Kafka's codec does not read."""
MANY = 20_000
LISTED = 2_000_000
"""Bytes: just below `limits.list_frame_bytes`."""
GROUP_RESOURCE = 32
CONNECTIONS = 3_000
"""More than `limits.connections` of the sidecar that is attacked."""
PROBES = 64
"""`admin_access.connections`."""


def names(n: int, prefix: str = "managed-") -> list[str]:
    return [f"{prefix}{i:05x}" for i in range(n)]


# ---- nobody -----------------------------------------------------------------------------------------------
def described() -> bytes:
    return request(69, 0, cd.ConsumerGroupDescribeRequest(names(MANY)))


async def described_beside_one(t: Target, done: Done) -> None:
    """The name of one managed group is known, and so the request is looked at."""
    frame = request(15, 5, dg.DescribeGroupsRequest([t.group, *names(2 * MANY)]))
    await asks(t, done, lambda: [frame])


def altered() -> bytes:
    resources = [al.AlterConfigsResource(GROUP_RESOURCE, name, []) for name in names(MANY)]
    return request(33, 2, al.AlterConfigsRequest(resources, True))


def altered_in_part() -> bytes:
    resources = [ia.AlterConfigsResource(GROUP_RESOURCE, name, []) for name in names(MANY)]
    return request(44, 1, ia.IncrementalAlterConfigsRequest(resources, True))


def settings_read() -> bytes:
    resources = [dc.DescribeConfigsResource(GROUP_RESOURCE, name, None) for name in names(MANY)]
    return request(32, 4, dc.DescribeConfigsRequest(resources))


async def long_ids(t: Target, done: Done) -> None:
    """Each connection asks once for the coordinator of another group, whose name has 2 MB."""
    frame = request(10, 4, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["MARK"]))
    filler, serial = b"a" * LISTED + "\N{GRINNING FACE}".encode(), count()

    def frames() -> Iterator[bytes]:
        yield with_long(frame, "MARK", f"{next(serial):06}".encode() + filler[6:])

    await asks(t, done, frames)


def long_id() -> bytes:
    req = ch.ConsumerGroupHeartbeatRequest(group_id="MARK", member_id="m", member_epoch=1)
    return with_long(request(68, 1, req), "MARK", b"managed-" + b"l" * LONG)


def long_id_beside_another() -> bytes:
    req = cd.ConsumerGroupDescribeRequest(["managed-k0", "MARK"])
    return with_long(request(69, 1, req), "MARK", b"managed-" + b"l" * LONG)


def found() -> bytes:
    """As many keys as fit in a request."""
    return request(10, 4, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=names(LISTED // 14)))


def tags() -> bytes:
    """A header of half a million tagged fields, all of them empty, before a body."""
    head = bytearray(b"\0\1x")
    put_uvarint(head, n := LISTED // 5)
    for i in range(n):
        put_uvarint(head, 1_000 + i)
        head.append(0)
    body = ch.ConsumerGroupHeartbeatRequest(group_id="managed-t", member_id="m", member_epoch=1).encode(1)
    plain_frame = request_frame(68, 1, 1, None, False, b"")
    frame = plain_frame[4:-2] + bytes(head) + body
    return len(frame).to_bytes(4, "big") + frame


async def silent(t: Target, done: Done) -> None:
    """More connections than there may be, of one address, none of which sends a byte."""
    pairs = []
    for _ in range(CONNECTIONS):
        if not t.goes_on:
            break
        try:
            pairs.append(await t.connect(done))
        except OSError:
            done.failed += 1
    await asyncio.sleep(t.left_s)
    for _, writer in pairs:
        writer.transport.abort()


def large_token() -> bytes:
    return handshake() + token(b"\0" * (LISTED - 100))


async def wrong_passwords(t: Target, done: Done) -> None:
    frames = [handshake(), token(plain("alice", "wrong"))]
    await asks(t, done, lambda: frames, connections=20)


# ---- mallory ----------------------------------------------------------------------------------------------
def fetched() -> bytes:
    groups = [of.OffsetFetchRequestGroup(group_id=name, topics=[]) for name in ["managed-x", *names(MANY, "other-")]]
    return request(9, 8, of.OffsetFetchRequest(groups=groups))


def committed_in_transaction() -> bytes:
    topics = [tc.TxnOffsetCommitRequestTopic(name, partitions=[]) for name in names(MANY, "t")]
    return request(28, 3, tc.TxnOffsetCommitRequest("t", "managed-x", 1, 1, topics=topics))


def deleted() -> bytes:
    return request(42, 2, dl.DeleteGroupsRequest(names(LISTED // 14)))


def subscribed_without_right() -> bytes:
    req = ch.ConsumerGroupHeartbeatRequest("managed-mallory", "m", 0, rebalance_timeout_ms=60_000, topic_partitions=[])
    req.subscribed_topic_names = names(LISTED // 14, "topics-")
    return request(68, 1, req)


# ---- at the admin endpoint --------------------------------------------------------------------------------
async def _hold(t: Target, done: Done, first: bytes, bit: bytes) -> None:
    """As many connections as the endpoint takes, each silent but for a bit each 0.2 s; those that end are renewed."""

    async def one() -> None:
        while t.goes_on:
            try:
                reader, writer = await t.connect(done, t.admin)
            except OSError:
                done.failed += 1
                continue
            writer.write(first)
            while t.goes_on and not reader.at_eof() and not writer.is_closing():
                writer.write(bit)
                done.sent += 1
                await asyncio.sleep(0.2)
            done.closed += t.goes_on
            writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(PROBES)))


async def probes_idle(t: Target, done: Done) -> None:
    await _hold(t, done, b"", b"")


async def probes_slow(t: Target, done: Done) -> None:
    await _hold(t, done, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"s")


async def pictures(t: Target, done: Done) -> None:
    """16 readers of the largest group's picture, without a pause."""
    get = f"GET /group?id={t.group} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    async def one() -> None:
        while t.goes_on:
            try:
                reader, writer = await t.connect(done, t.admin)
                writer.write(get)
                async with asyncio.timeout(t.left_s):
                    while await reader.read(1 << 20):
                        pass
                done.answered += 1
            except TimeoutError:
                return
            except OSError:
                done.closed += 1

    await asyncio.gather(*(one() for _ in range(16)))


NOBODY: dict[str, Attack] = {
    "described": asking(described),
    "described_beside_one": described_beside_one,
    "altered": asking(altered),
    "altered_in_part": asking(altered_in_part),
    "settings_read": asking(settings_read),
    "long_ids": long_ids,
    "long_id": asking(long_id),
    "long_id_beside_another": asking(long_id_beside_another),
    "found": asking(found),
    "tags": asking(tags),
    "silent": silent,
    "large_token": asking(large_token),
    "wrong_passwords": wrong_passwords,
    "probes_idle": probes_idle,
    "probes_slow": probes_slow,
}
MALLORY: dict[str, Attack] = {
    "fetched": asking(fetched),
    "committed_in_transaction": asking(committed_in_transaction),
    "deleted": asking(deleted),
    "subscribed_without_right": asking(subscribed_without_right),
}
