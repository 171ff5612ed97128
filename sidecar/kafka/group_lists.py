"""The groups that a broker lists, or the sidecar before it, and the lag of each. For people only.

A node lists the groups that it coordinates. The broker that coordinates a share group also has its offsets and its lag
(KIP-1226). Large answers are decoded in a thread, as in offsets.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import NO_ANSWER, BrokerConnection, ConnectionLost
from sidecar.kafka.offsets import LATEST, Offsets, Place, by_leader, committed, group_batches, listed
from sidecar.wire.frames import response_body
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import list_groups as lg

CLASSIC, SHARE = "classic", "share"
LAG_SINCE = 1
"""First version of DescribeShareGroupOffsets with the lag."""


T = TypeVar("T")


class ListedGroup(NamedTuple):
    """A group in a list. `kind`: classic where the broker does not return it; `state`: "" where it does not."""

    kind: str
    protocol: str
    state: str


class PartitionLag(NamedTuple):
    """The lag of one partition. `committed`: of a share group, the beginning of its share state; `end`: None if only
    the lag is known."""

    committed: int
    end: int | None
    lag: int


ConnectTo = Callable[[int], Awaitable[BrokerConnection]]
"""Returns a connection to this node."""
NO_LIMIT = 1 << 62


async def groups_at(conn: BrokerConnection, timeout_s: float) -> dict[str, ListedGroup]:
    """Returns the groups that a node lists. Raises ConnectionLost, TimeoutError, WireError; the first also for an error
    that the node answers."""
    version, flexible, raw = await conn.exchange(lg, "ListGroups", lg.ListGroupsRequest(), timeout_s=timeout_s)

    def decode() -> tuple[int, dict[str, ListedGroup]]:
        res = lg.ListGroupsResponse.decode(version, raw, response_body(raw, flexible))
        return res.error_code, {
            g.group_id: ListedGroup(g.group_type.lower() or CLASSIC, g.protocol_type, g.group_state) for g in res.groups
        }

    code, groups = await asyncio.to_thread(decode)
    if code != Code.NONE:
        raise ConnectionLost(f"ListGroups: {name_of(code)}")
    return groups


def behind(committed_offsets: Mapping[str, Offsets], ends: Offsets) -> dict[str, dict[Place, PartitionLag]]:
    """Returns the lags of partitions whose end is known. A commit that is newer than the known end is no lag."""
    return {
        group_id: {p: PartitionLag(at, ends[p], max(0, ends[p] - at)) for p, at in offsets.items() if p in ends}
        for group_id, offsets in committed_offsets.items()
    }


class LagReader:
    """Reads the lags of some groups. Without a node's answer, only the facts that it alone has are missing."""

    def __init__(self, connect_to: ConnectTo, timeout_s: float, most: int = NO_LIMIT) -> None:
        """Begins without lags. `most`: partitions; groups beyond it are left out, and `problems` names their nodes."""
        self.lags: dict[str, Mapping[Place, PartitionLag]] = {}
        self.problems: dict[int, str] = {}
        self._connect_to = connect_to
        self._timeout_s = timeout_s
        self._left = most
        self._committed: dict[str, Offsets] = {}
        self._ends: Offsets = {}

    async def read(self, kinds: Mapping[int, Mapping[str, str]], leaders: Mapping[str, Sequence[int]]) -> None:
        """Reads lags. `kinds`: node that keeps the offsets -> group -> kind; `leaders`: node ids by topic and
        partition."""
        asks = []
        for node_id, of in kinds.items():
            for ask, share in ((self._consumed, False), (self._shared, True)):
                if names := [g for g, kind in of.items() if (kind == SHARE) is share]:
                    asks.append(self._at(node_id, ask, group_batches(names)))
        await asyncio.gather(*asks)
        places = set(chain.from_iterable(self._committed.values()))
        await asyncio.gather(*(self._at(n, self._listed, batches) for n, batches in by_leader(places, leaders).items()))
        self.lags |= behind(self._committed, self._ends)

    async def _at(
        self, node_id: int, ask: Callable[[BrokerConnection, T], Awaitable[None]], parts: Iterable[T]
    ) -> None:
        try:
            conn = await self._connect_to(node_id)
            for part in parts:
                if self._left <= 0:
                    raise ConnectionLost("not asked: the other groups have too many partitions")
                await ask(conn, part)
        except NO_ANSWER as exc:
            self.problems[node_id] = str(exc) or "no answer in time"

    async def _consumed(self, conn: BrokerConnection, names: list[str]) -> None:
        offsets = await committed(conn, names, self._timeout_s)
        self._left -= sum(map(len, offsets.values()))
        self._committed |= offsets

    async def _shared(self, conn: BrokerConnection, names: list[str]) -> None:
        entries = [ds.DescribeShareGroupOffsetsRequestGroup(name, topics=None) for name in names]
        req = ds.DescribeShareGroupOffsetsRequest(entries)
        res = await conn.request(ds, "DescribeShareGroupOffsets", req, timeout_s=self._timeout_s, low=LAG_SINCE)
        for g in (g for g in res.groups if g.error_code == Code.NONE):
            parts = ((t.topic_name, p) for t in g.topics for p in t.partitions if p.lag >= 0)
            of = {(topic, p.partition_index): PartitionLag(p.start_offset, None, p.lag) for topic, p in parts}
            self._left -= len(of)
            self.lags[g.group_id] = of

    async def _listed(self, conn: BrokerConnection, places: Mapping[str, Sequence[int]]) -> None:
        self._ends |= await listed(conn, places, LATEST, self._timeout_s)
