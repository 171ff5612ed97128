"""A group as the broker that coordinates it describes it, and the way its members are sent away from there.

DescribeGroups describes classic groups, and since version 6 reports groups of another kind; each other kind has an API
of its own. OffsetFetch shows whether there are offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from sidecar.core.streams.tasks import Tasks, merged
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka import share_group
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.kafka.placeholder_requests import INSTANCE_ID
from sidecar.wire.apis import Api, message_name
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import streams_group_describe as td
from sidecar.wire.generated import streams_group_heartbeat as th
from sidecar.wire.primitives import WireError

NO_MEMBERS, CLASSIC, CONSUMER, OTHER = "nobody", "classic", "consumer", "other"
SHARE, STREAMS = "share", "streams"
MAY_COME = ("Stable", "NotReady")
"""States of a streams group in which nothing is under way if its members have what they should."""
LEAVE_EPOCH = -1
OTHER_KINDS_SINCE = 6
CONSUMER_MEMBER = 1
"""Type of members that speak the consumer protocol."""
SEVERAL_SINCE, BY_NAME_UNTIL = 8, 9
"""Versions of OffsetFetch: the first for several groups, and the last that names topics."""
WITHOUT_WORDS = 5
"""Last version of DescribeGroups whose answer has no message."""
STRING_MAX = 32_767
"""Most bytes of a string."""
SERVED_BY: dict[str, tuple[ModuleType, Api, int]] = {
    CONSUMER: (cd, Api.CONSUMER_GROUP_DESCRIBE, 0),
    SHARE: (sd, Api.SHARE_GROUP_DESCRIBE, share_group.STABLE_SINCE),
    STREAMS: (td, Api.STREAMS_GROUP_DESCRIBE, 0),
}
"""Kind -> a request that shows whether a broker serves it: UNSUPPORTED_VERSION, as to heartbeats, while the kind is
switched off. The broker's ApiVersions lists the API all the same."""
Owned = dict[bytes, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the broker's group. `names`, `regex`: its subscription, in a consumer or share group; `metadata`,
    `assignment`: in a classic group; `streams`: as in StreamsGroupDescribe."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""
    rack_id: str | None = None
    names: tuple[str, ...] = ()
    regex: str | None = None
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    target: Owned = field(default_factory=dict)
    classic: bool = False
    """Whether it speaks the classic protocol in a consumer group."""
    streams: td.Member | None = None


@dataclass(frozen=True, slots=True)
class Native:
    """The broker's group. `kind`: the kind of the group, or NOBODY without members; `topics`: ids and names of the
    topics in assignments; `topology`: of a streams group."""

    kind: str
    state: str = ""
    members: tuple[Member, ...] = ()
    protocol_type: str = ""
    protocol: str = ""
    epoch: int = -1
    assignor: str = ""
    topics: dict[bytes, str] = field(default_factory=dict)
    assignment_epoch: int = -1
    topology: td.Topology | None = None

    @property
    def stable(self) -> bool:
        """Whether every member has what it should, and nothing is under way. Members of a share group never wait for
        each other."""
        if self.kind == SHARE:
            return True
        if self.kind == STREAMS:
            return self.state in MAY_COME and all(self._settled(m) for m in self.members)
        if self.kind != CONSUMER:
            return self.state == "Stable"
        return self.state == "Stable" and all(m.epoch == self.epoch and _same(m.owned, m.target) for m in self.members)

    def _settled(self, m: Member) -> bool:
        """Returns whether a member has its target. One that still has to give up a task is behind in its epoch; which
        task that is stays unknown."""
        streams, behind = m.streams, m.epoch != self.assignment_epoch
        return streams is not None and not behind and tasks(streams.assignment) == tasks(streams.target_assignment)


def _wordy(group_id: str) -> bool:
    """Returns whether the id is too long for a broker's message. A broker that wants to say that there is no such group
    then fails with UNKNOWN_SERVER_ERROR."""
    return len(group_id.encode()) > STRING_MAX - len("Group  is not a consumer group.")


def _same(a: Owned, b: Owned) -> bool:
    return {t: frozenset(ps) for t, ps in a.items() if ps} == {t: frozenset(ps) for t, ps in b.items() if ps}


async def describe(conn: BrokerConnection, group_id: str, timeout_s: float) -> Native:
    """Returns the group without the sidecars' own placeholder. Raises ConnectionLost, TimeoutError, WireError."""
    req = dg.DescribeGroupsRequest(groups=[group_id])
    high = WITHOUT_WORDS if _wordy(group_id) else None
    (g,) = (await conn.request(dg, "DescribeGroups", req, high, timeout_s, low=4)).groups
    if g.error_code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
        raise ConnectionLost(f"DescribeGroups: {name_of(g.error_code)}")
    members = tuple(
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment)
        for m in g.members
        if m.group_instance_id != INSTANCE_ID
    )
    if members:
        return Native(CLASSIC, g.group_state, members, g.protocol_type, g.protocol_data)
    message = g.error_message or ""
    if g.error_code == Code.GROUP_ID_NOT_FOUND and "is not a classic group" not in message:
        return Native(NO_MEMBERS)
    if g.error_code == Code.NONE and g.group_state != "Dead":
        return Native(NO_MEMBERS)
    group = await _consumer(conn, group_id, timeout_s)
    if group is None and g.error_code == Code.GROUP_ID_NOT_FOUND:
        group = await _share(conn, group_id, timeout_s) or await _streams(conn, group_id, timeout_s) or Native(OTHER)
    return group or Native(NO_MEMBERS)


async def _described(
    conn: BrokerConnection, module: Any, name: str, req: Any, group_id: str, timeout_s: float, low: int = 0
) -> Any:
    """Returns the description; None: the group is of another kind, or the broker does not know the kind."""
    try:
        (g,) = (await conn.request(module, name, req, timeout_s=timeout_s, low=low)).groups
    except WireError:
        return None
    if g.error_code in (Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION):
        return None
    if g.error_code == Code.UNKNOWN_SERVER_ERROR and _wordy(group_id):
        return None
    if g.error_code != Code.NONE:
        raise ConnectionLost(f"{name}: {name_of(g.error_code)}")
    return g


async def _consumer(conn: BrokerConnection, group_id: str, timeout_s: float) -> Native | None:
    req = cd.ConsumerGroupDescribeRequest(group_ids=[group_id])
    g = await _described(conn, cd, "ConsumerGroupDescribe", req, group_id, timeout_s)
    if g is None:
        return None
    if not g.members:
        return Native(NO_MEMBERS)
    topics = {p.topic_id: p.topic_name for m in g.members for p in m.assignment.topic_partitions}
    members = tuple(
        Member(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            rack_id=m.rack_id,
            names=tuple(sorted(set(m.subscribed_topic_names))),
            regex=m.subscribed_topic_regex,
            epoch=m.member_epoch,
            owned=_parts(m.assignment),
            target=_parts(m.target_assignment),
            classic=m.member_type not in (-1, CONSUMER_MEMBER),
        )
        for m in g.members
    )
    return Native(CONSUMER, g.group_state, members, epoch=g.group_epoch, assignor=g.assignor_name, topics=topics)


async def _share(conn: BrokerConnection, group_id: str, timeout_s: float) -> Native | None:
    req = sd.ShareGroupDescribeRequest([group_id])
    low = share_group.STABLE_SINCE
    g: sd.DescribedGroup | None = await _described(conn, sd, "ShareGroupDescribe", req, group_id, timeout_s, low)
    if g is None:
        return None
    clients = [m for m in g.members if not share_group.is_placeholder(m.member_id)]
    topics = {p.topic_id: p.topic_name for m in clients for p in m.assignment.topic_partitions}
    members = tuple(
        Member(
            m.member_id,
            None,
            m.client_id,
            m.client_host,
            rack_id=m.rack_id,
            names=tuple(sorted(set(m.subscribed_topic_names))),
            epoch=m.member_epoch,
            owned=_parts(m.assignment),
        )
        for m in clients
    )
    return Native(
        SHARE,
        g.group_state,
        members,
        epoch=g.group_epoch,
        assignor=g.assignor_name,
        topics=topics,
        assignment_epoch=g.assignment_epoch,
    )


async def _streams(conn: BrokerConnection, group_id: str, timeout_s: float) -> Native | None:
    req = td.StreamsGroupDescribeRequest([group_id])
    g: td.DescribedGroup | None = await _described(conn, td, "StreamsGroupDescribe", req, group_id, timeout_s)
    if g is None:
        return None
    members = tuple(
        Member(m.member_id, m.instance_id, m.client_id, m.client_host, epoch=m.member_epoch, streams=m)
        for m in g.members
    )
    return Native(
        STREAMS,
        g.group_state,
        members,
        epoch=g.group_epoch,
        assignor=g.assignor_name or "",
        assignment_epoch=g.assignment_epoch,
        topology=g.topology,
    )


def _parts(a: cd.Assignment | sd.Assignment) -> Owned:
    return {p.topic_id: tuple(sorted(p.partitions)) for p in a.topic_partitions}


def tasks(a: td.Assignment) -> Tasks:
    roles = (a.active_tasks, a.standby_tasks, a.warmup_tasks)
    return Tasks(*(merged((t.subtopology_id, tuple(t.partitions)) for t in role) for role in roles))


async def serves(conn: BrokerConnection, kind: str, group_id: str, timeout_s: float) -> bool:
    """Returns whether this broker serves groups of this kind: it has the API, and its features and settings allow the
    kind. Raises what `describe` raises."""
    if kind not in SERVED_BY:
        return True
    module, api, low = SERVED_BY[kind]
    if not conn.offers(api, low):
        return False
    name = message_name(api)
    req = getattr(module, f"{name}Request")(group_ids=[group_id])
    (g,) = (await conn.request(module, name, req, timeout_s=timeout_s, low=low)).groups
    return bool(g.error_code != Code.UNSUPPORTED_VERSION)


async def send_away(
    conn: BrokerConnection, group_id: str, members: Collection[Member], reason: str, timeout_s: float
) -> None:
    """Removes these members, of either protocol, from the broker's group. Raises what `describe` raises."""
    identities = [lg.MemberIdentity(m.member_id, m.instance_id, reason) for m in members]
    req = lg.LeaveGroupRequest(group_id=group_id, members=identities)
    res = await conn.request(lg, "LeaveGroup", req, low=3, timeout_s=timeout_s)
    bad = [m.error_code for m in res.members if m.error_code not in (Code.NONE, Code.UNKNOWN_MEMBER_ID)]
    if res.error_code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND) or bad:
        raise ConnectionLost(f"LeaveGroup: {name_of(bad[0] if bad else res.error_code)}")


async def leave_one_by_one(conn: BrokerConnection, group: Native, group_id: str, timeout_s: float) -> None:
    """Lets members of a share or streams group leave: LeaveGroup knows neither. Raises what `describe` raises."""
    leave = share_group.leave if group.kind == SHARE else _leave_streams
    await asyncio.gather(*[leave(conn, group_id, m.member_id, timeout_s) for m in group.members])


async def _leave_streams(conn: BrokerConnection, group_id: str, member_id: str, timeout_s: float) -> None:
    req = th.StreamsGroupHeartbeatRequest(group_id, member_id, LEAVE_EPOCH)
    res = await conn.request(th, "StreamsGroupHeartbeat", req, timeout_s=timeout_s)
    if res.error_code not in share_group.GONE:
        raise ConnectionLost(f"StreamsGroupHeartbeat: {name_of(res.error_code)}")


async def without_offsets(conn: BrokerConnection, groups: Sequence[str], timeout_s: float) -> list[str]:
    """Returns the groups for which this broker keeps no offset. Raises what `describe` raises."""
    entries = [of.OffsetFetchRequestGroup(g, topics=None) for g in groups]
    req = of.OffsetFetchRequest(groups=entries, require_stable=True)
    try:
        res = await conn.request(of, "OffsetFetch", req, BY_NAME_UNTIL, timeout_s, low=SEVERAL_SINCE)
    except WireError:
        return [g for g in groups if await _without_offsets(conn, g, timeout_s)]
    empty = (g.group_id for g in res.groups if _none_left(g.error_code, g.topics))
    return list(empty)


async def _without_offsets(conn: BrokerConnection, group_id: str, timeout_s: float) -> bool:
    """Asks a broker that answers for one group at a time."""
    req = of.OffsetFetchRequest(group_id=group_id, topics=None)
    res = await conn.request(of, "OffsetFetch", req, SEVERAL_SINCE - 1, timeout_s, low=2)
    return _none_left(res.error_code, res.topics)


def _none_left(code: int, topics: Sequence[object]) -> bool:
    return code == Code.GROUP_ID_NOT_FOUND or (code == Code.NONE and not topics)
