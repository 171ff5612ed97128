from __future__ import annotations

from sidecar.kafka.cluster import view_of
from sidecar.wire.generated import metadata as md


def answer(*brokers: int) -> md.MetadataResponse:
    partition = md.MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1, 2])
    return md.MetadataResponse(
        brokers=[md.MetadataResponseBroker(node_id=n, host="h", port=n, rack=f"rack-{n}") for n in brokers],
        topics=[md.MetadataResponseTopic(name="t", topic_id=b"\1" * 16, partitions=[partition])],
    )


def test_a_broker_that_is_down_keeps_its_rack() -> None:
    """Track record 8: a dead broker changed the metadata hash of every group, and so rebalanced them all."""
    racks: dict[int, str | None] = {}
    before = view_of(answer(1, 2), racks).topics
    assert before[0].racks == (("rack-1", "rack-2"),)
    assert view_of(answer(1), racks).topics == before
