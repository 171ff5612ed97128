"""Committed offsets of groups, and beginnings and ends of partitions, asked of the brokers in batches.

Answers are decoded in a thread: those of large groups would hold up the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.frames import response_body
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.primitives import WireError

SEVERAL_SINCE, BY_NAME_UNTIL = 8, 9
"""Versions of OffsetFetch: the first for several groups, and the last that names topics."""
LATEST, EARLIEST = -1, -2
Place = tuple[str, int]
"""Topic and partition."""
Offsets = dict[Place, int]
GROUPS_AT_ONCE = 100
"""Groups that one request names."""
PLACES_AT_ONCE = 1_000
"""Partitions that one request names."""


def group_batches(groups: Iterable[str]) -> Iterator[list[str]]:
    """Yields parts of `groups`, each small enough for one request."""
    rest = iter(groups)
    while batch := list(islice(rest, GROUPS_AT_ONCE)):
        yield batch


async def committed(conn: BrokerConnection, groups: Sequence[str], timeout_s: float) -> dict[str, Offsets]:
    """Returns the offsets of each group that this broker keeps. Groups with an error are left out. Raises
    ConnectionLost, TimeoutError, WireError."""
    entries = [of.OffsetFetchRequestGroup(g, topics=None) for g in groups]
    req = of.OffsetFetchRequest(groups=entries)
    try:
        version, flexible, raw = await conn.exchange(of, "OffsetFetch", req, BY_NAME_UNTIL, timeout_s, SEVERAL_SINCE)
    except WireError:
        asked = {g: await _of_one(conn, g, timeout_s) for g in groups}
        return {g: offsets for g, offsets in asked.items() if offsets is not None}

    def decode() -> dict[str, Offsets]:
        res = of.OffsetFetchResponse.decode(version, raw, response_body(raw, flexible))
        return {g.group_id: _stored(g.topics) for g in res.groups if g.error_code == Code.NONE}

    return await asyncio.to_thread(decode)


async def _of_one(conn: BrokerConnection, group_id: str, timeout_s: float) -> Offsets | None:
    """Asks a broker that answers for one group at a time; None: it has answered with an error."""
    req = of.OffsetFetchRequest(group_id=group_id, topics=None)
    res = await conn.request(of, "OffsetFetch", req, SEVERAL_SINCE - 1, timeout_s, low=2)
    return _stored(res.topics) if res.error_code == Code.NONE else None


def _stored(topics: Iterable[of.OffsetFetchResponseTopic | of.OffsetFetchResponseTopics]) -> Offsets:
    """Returns the offsets in the answer for one group. A partition without one has -1 there."""
    return {
        (t.name, p.partition_index): p.committed_offset
        for t in topics
        for p in t.partitions
        if p.error_code == Code.NONE and p.committed_offset >= 0
    }


def by_leader(places: Iterable[Place], leaders: Mapping[str, Sequence[int]]) -> dict[int, list[dict[str, list[int]]]]:
    """Returns the questions for each broker, in batches, by topic. `leaders`: node ids by partition; a partition
    without a leader is left out."""
    led: dict[int, list[Place]] = {}
    for topic, partition in sorted(places):
        of_topic = leaders.get(topic, ())
        if partition < len(of_topic) and of_topic[partition] >= 0:
            led.setdefault(of_topic[partition], []).append((topic, partition))
    batches: dict[int, list[dict[str, list[int]]]] = {}
    for node_id, node_places in led.items():
        for start in range(0, len(node_places), PLACES_AT_ONCE):
            batch: dict[str, list[int]] = {}
            for topic, partition in node_places[start : start + PLACES_AT_ONCE]:
                batch.setdefault(topic, []).append(partition)
            batches.setdefault(node_id, []).append(batch)
    return batches


async def listed(
    conn: BrokerConnection, places: Mapping[str, Sequence[int]], timestamp: int, timeout_s: float
) -> Offsets:
    """Returns LATEST or EARLIEST of these partitions, by topic, as far as this broker leads them. Raises
    ConnectionLost, TimeoutError, WireError."""
    topics = [
        lo.ListOffsetsTopic(name, [lo.ListOffsetsPartition(p, timestamp=timestamp) for p in parts])
        for name, parts in places.items()
    ]
    req = lo.ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=int(timeout_s * 1000))
    version, flexible, raw = await conn.exchange(lo, "ListOffsets", req, timeout_s=timeout_s, low=1)

    def decode() -> Offsets:
        res = lo.ListOffsetsResponse.decode(version, raw, response_body(raw, flexible))
        return {
            (t.name, p.partition_index): p.offset
            for t in res.topics
            for p in t.partitions
            if p.error_code == Code.NONE and p.offset >= 0
        }

    return await asyncio.to_thread(decode)
