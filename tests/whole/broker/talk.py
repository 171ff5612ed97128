"""Requests of tests to the simulated brokers, in few words."""

from __future__ import annotations

from typing import Any

from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import produce as pr
from sidecar.wire.generated import sync_group as sg
from tests.whole.broker.clockwork import START_MS, Client, Clockwork

GROUP, TRANSACTION = 0, 1


def make_topic(world: Clockwork, name: str = "t", partitions: int = 1, replicas: int = 3, **configs: str) -> None:
    """`configs`: with underscores for dots."""
    rows = [ct.CreatableTopicConfig(k.replace("_", "."), v) for k, v in configs.items()]
    topic = ct.CreatableTopic(name, partitions, replicas, [], rows)
    node = next(n for n in world.hosts if world.cluster.nodes[n].up)
    (r,) = Client(world, node).ask(ct, "CreateTopics", ct.CreateTopicsRequest([topic], 10_000)).topics
    assert r.error_code == 0, r.error_message
    world.run(200)


def coordinator(world: Clockwork, key: str, kind: int = GROUP, ask: int = 0) -> int:
    """The node that coordinates this key, as node `ask` (or any) says."""
    node = ask or next(n for n in world.hosts if world.cluster.nodes[n].up and not world.hosts[n].paused)
    client = Client(world, node)
    for _ in range(200):
        (c,) = client.ask(fc, "FindCoordinator", fc.FindCoordinatorRequest(key, kind, [key])).coordinators
        if c.error_code == 0:
            world.run(50)
            return int(c.node_id)
        world.run(100)
    raise AssertionError(f"no coordinator of {key}")


def produce_request(
    values: list[str],
    producer: tuple[int, int, int] = (-1, -1, -1),
    topic: str = "t",
    acks: int = -1,
    timeout_ms: int = 3_000,
) -> pr.ProduceRequest:
    """Values are `key=value`, or `key=` for a tombstone. `producer`: id, epoch and sequence."""
    rows = []
    for v in values:
        key, _, value = v.partition("=")
        rows.append(Encoded(key.encode(), value.encode() or None))
    raw = encode_batch(rows, START_MS, *producer)
    data = [pr.TopicProduceData(topic, partition_data=[pr.PartitionProduceData(0, raw)])]
    return pr.ProduceRequest(None, acks, timeout_ms, data)


def produce(client: Client, values: list[str], **more: Any) -> tuple[int, int]:
    """Code and base offset."""
    res = client.ask(pr, "Produce", produce_request(values, **more), 9)
    (p,) = res.responses[0].partition_responses
    return p.error_code, p.base_offset


def init(world: Clockwork, txn_id: str, node: int = 0) -> tuple[int, int]:
    """Producer id and epoch; asked until there are some."""
    client = Client(world, node or coordinator(world, txn_id, TRANSACTION))
    for _ in range(100):
        res = client.ask(ip, "InitProducerId", ip.InitProducerIdRequest(txn_id, 60_000))
        if res.error_code == 0:
            return res.producer_id, res.producer_epoch
        assert res.error_code in (14, 15, 51), res.error_code
        world.run(50)
    raise AssertionError("no producer id")


def join(client: Client, group: str, member_id: str = "", session_ms: int = 10_000, instance: str | None = None) -> Any:
    def request(member: str) -> jg.JoinGroupRequest:
        protocols = [jg.JoinGroupRequestProtocol("range", b"\0\0")]
        return jg.JoinGroupRequest(group, session_ms, 60_000, member, instance, "sidecar", protocols)

    res = client.ask(jg, "JoinGroup", request(member_id))
    return client.ask(jg, "JoinGroup", request(res.member_id)) if res.error_code == 79 else res


def sync(client: Client, group: str, joined: Any, instance: str | None = None) -> Any:
    given = [sg.SyncGroupRequestAssignment(m.member_id, b"yours") for m in joined.members]
    who = joined.generation_id, joined.member_id, instance
    return client.ask(sg, "SyncGroup", sg.SyncGroupRequest(group, *who, "sidecar", "range", given))


def beat(client: Client, group: str, joined: Any, instance: str | None = None) -> int:
    req = hb.HeartbeatRequest(group, joined.generation_id, joined.member_id, instance)
    return int(client.ask(hb, "Heartbeat", req).error_code)


def commit(client: Client, group: str, offset: int, member: tuple[int, str, str | None] = (-1, "", None)) -> int:
    topic = oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, offset)])
    res = client.ask(oc, "OffsetCommit", oc.OffsetCommitRequest(group, *member, topics=[topic]), 9)
    return int(res.topics[0].partitions[0].error_code)


def fetch(client: Client, group: str, stable: bool = True) -> tuple[int, int]:
    """Code (of the group, else of the partition) and offset."""
    asked = of.OffsetFetchRequestGroup(group, topics=[of.OffsetFetchRequestTopics("t", partition_indexes=[0])])
    (g,) = client.ask(of, "OffsetFetch", of.OffsetFetchRequest(groups=[asked], require_stable=stable), 9).groups
    if g.error_code:
        return g.error_code, -1
    (p,) = g.topics[0].partitions
    return p.error_code, p.committed_offset


def values(world: Clockwork, node: int, topic: str = "t") -> list[str]:
    """Returns what a consumer of partition 0 reads there."""
    found, at = [], 0
    while True:
        res = world.cluster.read(node, topic, 0, at, 2)
        assert res.error == 0, res.error
        found += [f"{(r.key or b'').decode()}={(r.value or b'').decode()}" for r in res.records]
        if res.next_offset == at:
            return found
        at = res.next_offset
