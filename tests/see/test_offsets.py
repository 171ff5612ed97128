"""The exporter's requests to the brokers, as bytes: for several groups at once, and one by one for older brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.offsets import EARLIEST, LATEST, committed, listed
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.primitives import WireError


class Broker:
    """Answers OffsetFetch up to `version`, and ListOffsets."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.asked: list[Any] = []

    async def exchange(
        self, module: Any, name: str, req: Any, high: int | None = None, timeout_s: float = 1.0, low: int = 0
    ) -> tuple[int, bool, bytes]:
        self.asked.append(req)
        if name == "ListOffsets":
            given = {
                t.name: [(p.partition_index, 0 if p.timestamp == EARLIEST else 9) for p in t.partitions]
                for t in req.topics
            }
            topics = [
                lo.ListOffsetsTopicResponse(
                    t,
                    [
                        lo.ListOffsetsPartitionResponse(p, Code.NOT_LEADER_OR_FOLLOWER if p == 2 else 0, offset=o)
                        for p, o in ps
                    ],
                )
                for t, ps in given.items()
            ]
            return 7, True, response_frame(1, True, lo.ListOffsetsResponse(topics=topics).encode(7))
        if self.version < low:
            raise WireError(f"OffsetFetch: the broker has no version from {low} on")
        groups = [self._group(g.group_id) for g in req.groups]
        return 8, True, response_frame(1, True, of.OffsetFetchResponse(groups=groups).encode(8))

    def _group(self, group_id: str) -> of.OffsetFetchResponseGroup:
        if group_id == "gone":
            return of.OffsetFetchResponseGroup(group_id, error_code=Code.NOT_COORDINATOR)
        parts = [
            of.OffsetFetchResponsePartitions(0, committed_offset=5),
            of.OffsetFetchResponsePartitions(1, committed_offset=-1),
        ]
        return of.OffsetFetchResponseGroup(group_id, [of.OffsetFetchResponseTopics("orders", partitions=parts)])

    async def request(
        self, module: Any, name: str, req: Any, high: int | None = None, timeout_s: float = 1.0, low: int = 0
    ) -> of.OffsetFetchResponse:
        self.asked.append(req)
        parts = [of.OffsetFetchResponsePartition(0, committed_offset=6)]
        return of.OffsetFetchResponse(topics=[of.OffsetFetchResponseTopic("orders", parts)])


@pytest.mark.parametrize(("version", "offset", "questions"), [(8, 5, 1), (7, 6, 3)])
def test_committed_offsets_of_several_groups(version: int, offset: int, questions: int) -> None:
    broker: Any = Broker(version)
    found = asyncio.run(committed(broker, ["a", "b"], 1.0))
    assert found == {g: {("orders", 0): offset} for g in ("a", "b")}
    assert len(broker.asked) == questions


def test_a_group_that_is_elsewhere_is_left_out() -> None:
    broker: Any = Broker(8)
    assert asyncio.run(committed(broker, ["a", "gone"], 1.0)) == {"a": {("orders", 0): 5}}


def test_ends_of_partitions_as_far_as_the_broker_leads_them() -> None:
    broker: Any = Broker(8)
    places = {"orders": [0, 1, 2]}
    assert asyncio.run(listed(broker, places, LATEST, 1.0)) == {("orders", 0): 9, ("orders", 1): 9}
    assert asyncio.run(listed(broker, places, EARLIEST, 1.0)) == {("orders", 0): 0, ("orders", 1): 0}
