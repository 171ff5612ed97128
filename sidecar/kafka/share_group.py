"""Requests about a share group to the broker that coordinates it: those of the sidecar's member there, and the question
which partitions are initialised. Requests that make or delete share state are not among them.

All raise ConnectionLost, TimeoutError, WireError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import describe_share_group_offsets as do
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh

STABLE_SINCE = 1
"""First version of ShareGroupHeartbeat and ShareGroupDescribe that was not early access."""
LEAVE_EPOCH = -1
MEMBER_IDS = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
GONE = (Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND)
"""Error codes after which the broker's group has no such member any more."""
GROUP_REFUSED = (Code.GROUP_AUTHORIZATION_FAILED, Code.UNSUPPORTED_VERSION)
"""Error codes of a broker that takes no request about this group."""


class GroupRefused(ConnectionLost):
    """Raised when the broker takes no request about the group: a right is missing, or it serves no share groups. It
    refuses heartbeats, too, so members end with their sessions."""


def placeholder_id(group_id: str, owner_epoch: int) -> str:
    """Returns the member id of this owner's placeholder."""
    return str(uuid5(MEMBER_IDS, f"{group_id}/{owner_epoch}"))


def is_placeholder(member_id: str) -> bool:
    """Returns whether a sidecar may have made this id. Clients make random ones, which are of another UUID version."""
    try:
        return UUID(member_id).version == 5 and member_id == str(UUID(member_id))
    except ValueError:
        return False


@dataclass(slots=True)
class Initialised:
    """Partitions that have share state, with the names of their topics. `whole`: no other partition of the topics that
    the group's members subscribe to has any. `members`: ids of the members whose partitions these are."""

    partitions: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    whole: bool = False
    members: frozenset[str] = frozenset()

    def add(self, topic_id: bytes, name: str, partitions: Iterable[int]) -> None:
        merged = {*self.partitions.get(topic_id, ()), *partitions}
        if merged:
            self.partitions[topic_id], self.names[topic_id] = tuple(sorted(merged)), name


async def heartbeat(
    conn: BrokerConnection,
    group_id: str,
    member_id: str,
    epoch: int,
    topic_names: Sequence[str] | None,
    timeout_s: float,
) -> sh.ShareGroupHeartbeatResponse:
    """Sends a heartbeat. `topic_names` None: not changed since the last one."""
    names = None if topic_names is None else list(topic_names)
    req = sh.ShareGroupHeartbeatRequest(group_id, member_id, epoch, None, names)
    res: sh.ShareGroupHeartbeatResponse = await conn.request(
        sh, "ShareGroupHeartbeat", req, timeout_s=timeout_s, low=STABLE_SINCE
    )
    return res


async def leave(conn: BrokerConnection, group_id: str, member_id: str, timeout_s: float) -> None:
    code = (await heartbeat(conn, group_id, member_id, LEAVE_EPOCH, None, timeout_s)).error_code
    if code not in GONE:
        raise (GroupRefused if code in GROUP_REFUSED else ConnectionLost)(f"ShareGroupHeartbeat: {name_of(code)}")


async def _described(conn: BrokerConnection, groups: Sequence[str], timeout_s: float) -> list[sd.DescribedGroup]:
    req = sd.ShareGroupDescribeRequest(list(groups))
    res: sd.ShareGroupDescribeResponse = await conn.request(
        sd, "ShareGroupDescribe", req, timeout_s=timeout_s, low=STABLE_SINCE
    )
    return res.groups


async def assigned(conn: BrokerConnection, group_id: str, timeout_s: float) -> Initialised:
    """Returns the partitions of all members of the broker's group: a broker assigns initialised ones, and no others."""
    (group,) = await _described(conn, [group_id], timeout_s)
    if group.error_code != Code.NONE:
        raise ConnectionLost(f"ShareGroupDescribe: {name_of(group.error_code)}")
    members = frozenset(m.member_id for m in group.members)
    result = Initialised(whole=group.assignment_epoch == group.group_epoch, members=members)
    for m in group.members:
        result.whole = result.whole and m.member_epoch == group.group_epoch
        for t in m.assignment.topic_partitions:
            result.add(t.topic_id, t.topic_name, t.partitions)
    return result


async def placeholders(conn: BrokerConnection, group_id: str, timeout_s: float) -> list[str]:
    """Returns the member ids of all placeholders in the broker's group."""
    (group,) = await _described(conn, [group_id], timeout_s)
    code = group.error_code
    if code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
        raise (GroupRefused if code in GROUP_REFUSED else ConnectionLost)(f"ShareGroupDescribe: {name_of(code)}")
    return [m.member_id for m in group.members if is_placeholder(m.member_id)]


async def unknown(conn: BrokerConnection, groups: Sequence[str], timeout_s: float) -> list[str]:
    """Returns the groups that are no share groups at this broker."""
    return [g.group_id for g in await _described(conn, groups, timeout_s) if g.error_code == Code.GROUP_ID_NOT_FOUND]


async def initialised(conn: BrokerConnection, group_id: str, timeout_s: float) -> Initialised:
    """Returns the partitions that the broker has initialised so far. The broker asks the share coordinator for each
    partition, and answers nothing else on this connection until it has its answer."""
    req = do.DescribeShareGroupOffsetsRequest([do.DescribeShareGroupOffsetsRequestGroup(group_id, None)])
    res = await conn.request(do, "DescribeShareGroupOffsets", req, timeout_s=timeout_s)
    (group,) = res.groups
    if group.error_code != Code.NONE:
        raise ConnectionLost(f"DescribeShareGroupOffsets: {name_of(group.error_code)}")
    result = Initialised()
    for t in group.topics:
        result.add(t.topic_id, t.topic_name, [p.partition_index for p in t.partitions if p.error_code == Code.NONE])
    return result
