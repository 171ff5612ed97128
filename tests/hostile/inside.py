"""Attacks of members: `alice` has READ of her own groups and of one topic, `bob` has READ of all groups.

Who becomes a member leaves in the end, as far as it is still there, so that the next attack begins in peace."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from sidecar.coordinator.membership.owners_protocol import SidecarInfo
from sidecar.wire.frames import response_body
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lv
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import sync_group as sy
from tests.hostile.outside import LISTED, MANY, names, pictures
from tests.hostile.target import Attack, Done, Target, asks, read_frame, request

OWN = "managed-alice-"
TOPIC = "orders"
OWNERS = "__group_state_owners"
SHORT_MS, LONG_MS = 6_000, 1_800_000
"""The least session timeout of a classic member, and the greatest."""
LARGE = 1_900_000
"""Bytes of a member's metadata: what fits in a JoinGroup."""
MEMBERS = 600
Joined = tuple[str, int]
"""Member id and generation or epoch."""


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(self, module: Any, name: str, api_key: int, version: int, req: Any, flexible: bool = True) -> Any:
        """Raises OSError and IncompleteReadError."""
        self.writer.write(request(api_key, version, req, flexible))
        body = await read_frame(self.reader)
        frame = len(body).to_bytes(4, "big") + body
        return getattr(module, f"{name}Response").decode(version, frame, response_body(frame, flexible))

    async def join(self, req: jg.JoinGroupRequest) -> jg.JoinGroupResponse:
        found: jg.JoinGroupResponse = await self.call(jg, "JoinGroup", 11, 3, req, flexible=False)
        return found

    async def beat(self, group: str, member: str, epoch: int, **more: Any) -> ch.ConsumerGroupHeartbeatResponse:
        first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} if epoch == 0 else {}
        req = ch.ConsumerGroupHeartbeatRequest(group, member, epoch, **first, **more)
        found: ch.ConsumerGroupHeartbeatResponse = await self.call(ch, "ConsumerGroupHeartbeat", 68, 1, req)
        return found


@asynccontextmanager
async def caller(t: Target, done: Done) -> AsyncIterator[Caller]:
    """A connection that need not live: an attack that is closed has ended."""
    reader, writer = await t.login(done)
    try:
        async with asyncio.timeout(t.left_s):
            yield Caller(reader, writer)
    except TimeoutError:
        return
    except (ConnectionError, asyncio.IncompleteReadError):
        done.closed += 1
    finally:
        writer.transport.abort()


def joining(group: str, protocols: list[tuple[str, bytes]], session_ms: int = SHORT_MS) -> jg.JoinGroupRequest:
    told = [jg.JoinGroupRequestProtocol(*protocol) for protocol in protocols]
    return jg.JoinGroupRequest(group, session_ms, session_ms, protocol_type="consumer", protocols=told)


def beating(group: str, member: str, epoch: int, **more: Any) -> bytes:
    first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} if epoch == 0 else {}
    return request(68, 1, ch.ConsumerGroupHeartbeatRequest(group, member, epoch, **first, **more))


def leaving(group: str, *members: str) -> list[bytes]:
    return [beating(group, member, -1) for member in members]


async def leave(t: Target, done: Done, frames: list[bytes]) -> None:
    """After the attack, in a time of its own."""
    reader, writer = await t.login(done)
    with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(10):
            writer.write(b"".join(frames))
            for _ in frames:
                await read_frame(reader)
    writer.transport.abort()


# ---- classic members --------------------------------------------------------------------------------------
def subscription(topics: list[str], owned: list[cs.TopicPartition]) -> bytes:
    return b"\0\1" + cs.ConsumerProtocolSubscription(topics=topics, owned_partitions=owned).encode(1)


async def owned_often(t: Target, done: Done) -> None:
    """A member that names one partition 20,000 times as its own."""
    await _owner(t, done, [cs.TopicPartition(TOPIC, [0] * MANY)])


async def owned_apart(t: Target, done: Done) -> None:
    """A member that names one topic 60,000 times, each time with another partition of it as its own."""
    await _owner(t, done, [cs.TopicPartition(TOPIC, [i]) for i in range(3 * MANY)])


async def _owner(t: Target, done: Done, owned: list[cs.TopicPartition]) -> None:
    metadata, serial = subscription([TOPIC], owned), count()

    def frames() -> Iterator[bytes]:
        yield request(11, 3, joining(f"{OWN}owned-{next(serial)}", [("range", metadata)]), False)

    await asks(t, done, frames)


async def assigned_often(t: Target, done: Done) -> None:
    """A leader that gives itself the same topic 100,000 times."""
    often = [ca.TopicPartition(TOPIC, [0]) for _ in range(5 * MANY)]
    assignment = b"\0\0" + ca.ConsumerProtocolAssignment(assigned_partitions=often).encode(0)
    for serial in count():
        if not t.goes_on:
            return
        async with caller(t, done) as me:
            group = f"{OWN}assigned-{serial}"
            joined = await me.join(joining(group, [("range", subscription([TOPIC], []))]))
            mine = [sy.SyncGroupRequestAssignment(joined.member_id, assignment)]
            req = sy.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=mine)
            await me.call(sy, "SyncGroup", 14, 3, req, flexible=False)
            done.answered += 1


async def large_member(me: Caller, group: str) -> str:
    """A stable classic group whose only member has told 1.9 MB of itself. Returns the member's id."""
    joined = await me.join(joining(group, [("range", b"\0" * LARGE)], session_ms=2 * SHORT_MS))
    if joined.error_code:
        return ""
    mine = [sy.SyncGroupRequestAssignment(joined.member_id, b"\0" * 10)]
    req = sy.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=mine)
    await me.call(sy, "SyncGroup", 14, 3, req, flexible=False)
    return joined.member_id


async def described_often(t: Target, done: Done) -> None:
    """A request of 5 KB that names a large group 300 times; its answer is not read."""
    group = f"{OWN}large"
    async with caller(t, done) as me:
        await large_member(me, group)
    frame = request(15, 5, dg.DescribeGroupsRequest([group] * 300))
    await asks(t, done, lambda: [frame], read=False)


async def protocols(t: Target, done: Done) -> None:
    """Members with as many protocols as fit in a JoinGroup, each in a group of its own."""
    many = [(name, b"") for name in names(LISTED // 15, "p")]
    frames = [request(11, 3, joining(f"{OWN}protocols-{i}", many), False) for i in range(8)]
    await asks(t, done, lambda: frames)


async def pending_ids(t: Target, done: Done) -> None:
    """Member ids that are given out and never used, for half an hour (KIP-394), each with a client id of 32 KB."""
    client_id = "c" * 32_000 + "\N{GRINNING FACE}"
    frame = request(11, 5, joining(f"{OWN}pending", [("range", b"")], LONG_MS), False, client_id)
    await asks(t, done, lambda: [frame] * 100)


async def left_often(t: Target, done: Done) -> None:
    """LeaveGroup of 60,000 members that are none."""
    group = f"{OWN}left"
    async with caller(t, done) as me:
        await me.join(joining(group, [("range", b"")]))
    frame = request(13, 5, lv.LeaveGroupRequest(group, members=[lv.MemberIdentity(name) for name in names(3 * MANY)]))
    await asks(t, done, lambda: [frame])


async def synced_for_others(t: Target, done: Done) -> None:
    """A leader that has an assignment for 60,000 members that are none."""
    others = [sy.SyncGroupRequestAssignment(name, b"") for name in names(3 * MANY)]
    for serial in count():
        if not t.goes_on:
            return
        async with caller(t, done) as me:
            group = f"{OWN}synced-{serial}"
            joined = await me.join(joining(group, [("range", b"")]))
            req = sy.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=others)
            await me.call(sy, "SyncGroup", 14, 3, req, flexible=False)
            done.answered += 1


# ---- KIP-848 members --------------------------------------------------------------------------------------
async def commits_at_once(t: Target, done: Done) -> None:
    """Eight connections of one member, each with commits of one partition 6,000 times."""
    group, member = f"{OWN}commits", str(uuid.uuid4())
    epoch = 0
    async with caller(t, done) as me:
        epoch = (await me.beat(group, member, 0, subscribed_topic_names=[TOPIC])).member_epoch
    places = [oc.OffsetCommitRequestPartition(0, 1) for _ in range(6_000)]
    topics = [TOPIC, *(f"order{i}" for i in range(7))]
    frames = [
        request(
            8,
            9,
            oc.OffsetCommitRequest(
                group, epoch, member, topics=[oc.OffsetCommitRequestTopic(topic, partitions=places)]
            ),
        )
        for topic in topics
    ]
    await asks(t, done, lambda: frames, connections=8)
    await leave(t, done, leaving(group, member))


async def commits_of_words(t: Target, done: Done) -> None:
    """Commits of a member with metadata of 32 KB for each of 60 partitions, which a broker refuses."""
    group, member = f"{OWN}words", str(uuid.uuid4())
    epoch = 0
    async with caller(t, done) as me:
        epoch = (await me.beat(group, member, 0, subscribed_topic_names=[TOPIC])).member_epoch
    places = [oc.OffsetCommitRequestPartition(i, 1, committed_metadata="w" * 32_000) for i in range(60)]
    topics = [oc.OffsetCommitRequestTopic(TOPIC, partitions=places)]
    frame = request(8, 9, oc.OffsetCommitRequest(group, epoch, member, topics=topics))
    await asks(t, done, lambda: [frame], connections=4)
    await leave(t, done, leaving(group, member))


async def filters(t: Target, done: Done) -> None:
    """ListGroups with 400,000 filters, by the member of 50 groups."""
    groups, member = names(50, f"{OWN}listed-"), str(uuid.uuid4())
    async with caller(t, done) as me:
        for group in groups:
            await me.beat(group, member, 0, subscribed_topic_names=[TOPIC])
    frame = request(16, 4, lg.ListGroupsRequest(states_filter=[""] * 400_000))
    await asks(t, done, lambda: [frame])
    await leave(t, done, [beating(group, member, -1) for group in groups])


async def expressions(t: Target, done: Done) -> None:
    """Forty members of two groups, each with a regular expression of ten characters that takes long for each topic."""
    groups, members = names(2, f"{OWN}regex-"), [str(uuid.uuid4()) for _ in range(20)]
    frames = [
        beating(group, member, 0, subscribed_topic_names=[], subscribed_topic_regex=f"(.?){{{1000 - i}}}")
        for i, member in enumerate(members)
        for group in groups
    ]
    serial = count()
    await asks(t, done, lambda: [frames[next(serial) % len(frames)]], connections=len(frames))
    await leave(t, done, [frame for group in groups for frame in leaving(group, *members)])


async def expressions_that_change(t: Target, done: Done) -> None:
    """A member with another expression in each heartbeat."""
    group, member, epoch, serial = f"{OWN}changes", str(uuid.uuid4()), 0, count()
    async with caller(t, done) as me:
        while t.goes_on:
            expression = f"(a|b|.*){{{100 + next(serial) % 800}}}.*x"
            found = await me.beat(group, member, epoch, subscribed_topic_names=[], subscribed_topic_regex=expression)
            epoch = found.member_epoch if found.error_code == 0 else 0
            done.answered += 1
    await leave(t, done, leaving(group, member))


async def topics_that_change(t: Target, done: Done) -> None:
    """A member with 2 MB of other topics in each of 20 heartbeats, in turn."""
    group, member = f"{OWN}topics", str(uuid.uuid4())
    frames = [
        beating(group, member, 0, subscribed_topic_names=names(LISTED // 16, f"topics-{i:02}-")) for i in range(10)
    ]
    await asks(t, done, lambda: frames)
    await leave(t, done, leaving(group, member))


async def names_at_once(t: Target, done: Done) -> None:
    """A hundred connections, each of which joins with as many short names of topics as a request may have."""
    group, member = f"{OWN}names", str(uuid.uuid4())
    frame = beating(group, member, 0, subscribed_topic_names=names(24_900, ""))
    await asks(t, done, lambda: [frame], connections=100)
    await leave(t, done, leaving(group, member))


async def described_by_many(t: Target, done: Done) -> None:
    """A hundred connections that have a large group described and do not read the answer."""
    group = f"{OWN}many"
    async with caller(t, done) as me:
        await large_member(me, group)
    frame = request(15, 5, dg.DescribeGroupsRequest([group]))
    await asks(t, done, lambda: [frame], connections=100, read=False)


async def groups_at_once(t: Target, done: Done) -> None:
    """Each heartbeat makes another group, as quickly as they are answered."""
    member, made, serial = str(uuid.uuid4()), [], count()

    def frames() -> Iterator[bytes]:
        for i in serial:
            made.append(f"{OWN}new-{i}")
            yield beating(made[-1], member, 0, subscribed_topic_names=[TOPIC])

    await asks(t, done, frames, connections=4)
    await leave(t, done, [beating(group, member, -1) for group in made])


async def churn(t: Target, done: Done) -> None:
    """Members that join one group and leave it again, without a pause."""
    group = f"{OWN}churn"

    def frames() -> Iterator[bytes]:
        for _ in range(1_000):
            member = str(uuid.uuid4())
            yield beating(group, member, 0, subscribed_topic_names=[TOPIC])
            yield beating(group, member, -1)

    await asks(t, done, frames, connections=8)


async def long_racks(t: Target, done: Done) -> None:
    """Members each of which has a rack and an instance id of 32 KB."""
    group, serial = f"{OWN}racks", count()
    made: list[str] = []

    def frames() -> Iterator[bytes]:
        for i in serial:
            made.append(str(uuid.uuid4()))
            long = {"rack_id": "r" * 32_000, "instance_id": f"{i:08}" + "i" * 32_000}
            yield beating(group, made[-1], 0, subscribed_topic_names=[TOPIC], **long)

    await asks(t, done, frames, connections=2)
    await leave(t, done, leaving(group, *made))


async def described_members_often(t: Target, done: Done) -> None:
    """ConsumerGroupDescribe that names a group of 100 members with long racks 300 times."""
    group, members = f"{OWN}described", [str(uuid.uuid4()) for _ in range(100)]
    async with caller(t, done) as me:
        for member in members:
            await me.beat(group, member, 0, subscribed_topic_names=[TOPIC], rack_id="r" * 8_000)
    frame = request(69, 1, cd.ConsumerGroupDescribeRequest([group] * 300))
    await asks(t, done, lambda: [frame], read=False)
    await leave(t, done, leaving(group, *members))


async def large_group_read(t: Target, done: Done) -> None:
    """A member makes a group of 600 members; 16 readers of the admin endpoint ask for its picture."""
    t.group, members = f"{OWN}pictured", [str(uuid.uuid4()) for _ in range(MEMBERS)]
    joins = [beating(t.group, member, 0, subscribed_topic_names=[TOPIC]) for member in members]
    await leave(t, done, joins)
    t.until = time.monotonic() + t.seconds
    await pictures(t, done)
    await leave(t, done, leaving(t.group, *members))


# ---- bob --------------------------------------------------------------------------------------------------
async def _own_group(t: Target, done: Done, metadata: bytes) -> None:
    """Joins the sidecars' own group until it is in, and stays there until the end."""
    member = ""
    while t.goes_on:
        async with caller(t, done) as me:
            told = [jg.JoinGroupRequestProtocol("beside-leader-v1", metadata)]
            req = jg.JoinGroupRequest(OWNERS, SHORT_MS, SHORT_MS, member, None, "sidecar", told)
            found = await me.call(jg, "JoinGroup", 11, 5, req, flexible=False)
            member = found.member_id
            done.answered += found.error_code == 0
        await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        reader, writer = await t.login(done)
        writer.write(request(13, 1, lv.LeaveGroupRequest(OWNERS, member), False))
        await read_frame(reader)
        writer.transport.abort()


async def owners_lies(t: Target, done: Done) -> None:
    """As the sidecar of node 1, which began later than the true one, at an address of its own."""
    await _own_group(t, done, SidecarInfo(1, "10.9.9.9", 9092, int(time.time() * 1000) + 10_000_000).encode())


async def owners_deep(t: Target, done: Done) -> None:
    await _own_group(t, done, b"[" * 100_000)


def own_group_asked() -> bytes:
    return request(15, 5, dg.DescribeGroupsRequest([OWNERS], True))


ALICE: dict[str, Attack] = {
    "owned_often": owned_often,
    "owned_apart": owned_apart,
    "assigned_often": assigned_often,
    "described_often": described_often,
    "protocols": protocols,
    "pending_ids": pending_ids,
    "left_often": left_often,
    "synced_for_others": synced_for_others,
    "commits_at_once": commits_at_once,
    "commits_of_words": commits_of_words,
    "filters": filters,
    "expressions": expressions,
    "expressions_that_change": expressions_that_change,
    "topics_that_change": topics_that_change,
    "names_at_once": names_at_once,
    "described_by_many": described_by_many,
    "groups_at_once": groups_at_once,
    "churn": churn,
    "long_racks": long_racks,
    "described_members_often": described_members_often,
    "large_group_read": large_group_read,
}
BOB: dict[str, Attack] = {"owners_lies": owners_lies, "owners_deep": owners_deep}
