from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.kafka.cluster import MetadataReader, view_of
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import describe_cluster as dr
from sidecar.wire.generated import metadata as md
from tests.inprocess import clock
from tests.kafka.test_lying import listener


def answer(*brokers: int) -> md.MetadataResponse:
    partition = md.MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1, 2])
    return md.MetadataResponse(
        brokers=[md.MetadataResponseBroker(node_id=n, host="h", port=n, rack=f"rack-{n}") for n in brokers],
        topics=[md.MetadataResponseTopic(name="t", topic_id=b"\1" * 16, partitions=[partition])],
    )


def test_a_broker_that_is_down_keeps_its_rack() -> None:
    """Symptom: a dead broker changed the metadata hash of every group, and so rebalanced them all."""
    racks: dict[int, str | None] = {}
    before = view_of(answer(1, 2), racks).topics
    assert before[0].racks == (("rack-1", "rack-2"),)
    assert view_of(answer(1), racks).topics == before


@pytest.mark.parametrize(
    "offered, error, racks",
    [
        ((0, 2), 0, {1: "rack-1", 2: "rack-2"}),
        ((0, 2), 35, {1: "rack-1"}),
        ((0, 1), 0, {1: "rack-1"}),
    ],
    ids=["told", "refused", "before 4.0"],
)
def test_a_reader_that_begins_while_a_broker_is_down_asks_for_its_rack(
    offered: tuple[int, int], error: int, racks: dict[int, str]
) -> None:
    """The reader asks once. At real brokers: tests/clients/test_racks.py."""
    keys = [av.ApiVersion(Api.METADATA, 12, 12), av.ApiVersion(Api.DESCRIBE_CLUSTER, *offered)]
    described = dr.DescribeClusterResponse(
        error_code=error, brokers=[dr.DescribeClusterBroker(n, "h", n, f"rack-{n}", n == 2) for n in (1, 2)]
    )
    answers: list[Any] = [answer(1).encode(12), answer(1).encode(12)]
    if offered[1] == 2:
        answers.insert(0, described.encode(2))
    frames = [response_frame(i + 2, True, body) for i, body in enumerate(answers)]

    async def main() -> None:
        server, host, port = await listener(
            response_frame(1, False, av.ApiVersionsResponse(api_keys=keys).encode(3)), *frames
        )
        conn = await BrokerConnection.open(host, port, "c")
        found: dict[int, str | None] = {}
        reader = MetadataReader(found)
        for _ in range(2):
            await asyncio.wait_for(reader.read(conn, None), 2)
        assert found == racks
        conn.close()
        server.close()

    clock.run(main())
