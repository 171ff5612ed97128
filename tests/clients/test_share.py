"""Java's share consumers behind a sidecar that coordinates share groups, on a real broker."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import java
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, wait_until
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.clients.ground import ENV, make_topic, produce

pytestmark = pytest.mark.tier("all")
GROUP, TOPIC, PARTITIONS, RECORDS = "managed-share", "shared", 4, 2_000
SOURCE = Path(__file__).parent.parent / "java" / "ShareReader.java"
SHARING = {**ENV, "SIDECAR_GROUPS__KINDS": '["classic", "consumer", "share"]'}
GROUP_RESOURCE = 32


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    k = LocalKafka(tmp_path_factory.mktemp("share"), brokers=1, sidecar_env=SHARING)
    try:
        k.start()
        make_topic(k, TOPIC, PARTITIONS)
        asyncio.run(from_the_start(k))
        yield k
    finally:
        k.stop()


async def from_the_start(k: LocalKafka, group: str = GROUP) -> None:
    """The leaders of partitions read this setting of the group at the broker."""
    conn = await BrokerConnection.open("127.0.0.1", k.nodes[0].internal_port, "test")
    value = ia.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(GROUP_RESOURCE, group, [value])])
    res = await conn.request(ia, "IncrementalAlterConfigs", req)
    assert res.responses[0].error_code == Code.NONE, res
    conn.close()


class Reader:
    def __init__(self, k: LocalKafka, name: str, group: str = GROUP, topic: str = TOPIC) -> None:
        self.log = k.folder / f"{name}.log"
        command = [java(), "-cp", f"{k.libs}/*", str(SOURCE), k.bootstrap, group, topic, name]
        self.process = Process(name, command, self.log).start()

    def values(self) -> list[int]:
        return [int(v) for v in re.findall(r"^record (\d+)$", self.log.read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def readers(kafka: LocalKafka) -> Iterator[list[Reader]]:
    made = [Reader(kafka, f"reader-{i}") for i in range(2)]
    try:
        wait_until("two members", lambda: len(asyncio.run(described(kafka)).members) == 2, 60)
        yield made
    finally:
        for reader in made:
            reader.process.kill()


async def described(k: LocalKafka) -> sd.DescribedGroup:
    try:
        conn = await BrokerConnection.open("127.0.0.1", k.nodes[0].sidecar_port, "test")
        res: sd.ShareGroupDescribeResponse = await conn.request(
            sd, "ShareGroupDescribe", sd.ShareGroupDescribeRequest([GROUP])
        )
    except (ConnectionLost, TimeoutError):
        return sd.DescribedGroup()
    conn.close()
    return res.groups[0]


async def lag(k: LocalKafka, group: str = GROUP) -> int:
    conn = await BrokerConnection.open("127.0.0.1", k.nodes[0].sidecar_port, "test")
    req = ds.DescribeShareGroupOffsetsRequest([ds.DescribeShareGroupOffsetsRequestGroup(group, None)])
    res = await conn.request(ds, "DescribeShareGroupOffsets", req, timeout_s=60)
    conn.close()
    parts = [p.lag for t in res.groups[0].topics for p in t.partitions]
    assert len(parts) == PARTITIONS
    return -1 if min(parts) < 0 else sum(parts)


def read(readers: list[Reader]) -> Counter[int]:
    return Counter(v for r in readers for v in r.values())


def test_two_members_share_the_partitions_and_read_each_record(kafka: LocalKafka, readers: list[Reader]) -> None:
    produce(kafka, TOPIC, RECORDS)
    wait_until("all records", lambda: len(read(readers)) == RECORDS, 60)
    assert all(r.values() for r in readers), "both of them work"
    assert set(read(readers).values()) == {1}, "none was delivered twice while all is well"
    wait_until("all acknowledged", lambda: asyncio.run(lag(kafka)) == 0, 60)
    group = asyncio.run(described(kafka))
    held = sorted(p for m in group.members for t in m.assignment.topic_partitions for p in t.partitions)
    assert group.group_state == "Stable" and held == list(range(PARTITIONS))


def test_the_owner_is_killed_and_comes_back(kafka: LocalKafka, readers: list[Reader]) -> None:
    before = read(readers)
    node = kafka.nodes[0]
    assert node.sidecar is not None
    node.sidecar.kill()
    kafka.start_sidecar(node)
    wait_until("the members", lambda: len(asyncio.run(described(kafka)).members) == 2, 60)
    produce(kafka, TOPIC, RECORDS)
    wait_until("all records again", lambda: min((read(readers) - before).get(v, 0) for v in range(RECORDS)) >= 1, 90)
    wait_until("all acknowledged", lambda: asyncio.run(lag(kafka)) == 0, 60)
    assert all(r.process.alive for r in readers), "no client dies of an answer"


def test_how_soon_a_member_has_its_partitions(kafka: LocalKafka, readers: list[Reader]) -> None:
    """Kafka's own coordinator needs two heartbeats where the state is new, 5 s by default."""

    async def joined(conn: BrokerConnection, group: str, member: str) -> float:
        began_s = time.perf_counter()
        res = await conn.request(
            sh, "ShareGroupHeartbeat", sh.ShareGroupHeartbeatRequest(group, member, 0, None, [TOPIC])
        )
        assert res.error_code == Code.NONE and res.assignment.topic_partitions, res
        return time.perf_counter() - began_s

    async def test() -> None:
        conn = await BrokerConnection.open("127.0.0.1", kafka.nodes[0].sidecar_port, "test")
        new, known = [], []
        for i in range(20):
            group = f"managed-new-{i}"
            new.append(await joined(conn, group, "m"))
            left = await conn.request(sh, "ShareGroupHeartbeat", sh.ShareGroupHeartbeatRequest(group, "m", -1))
            assert left.error_code == Code.NONE
            known.append(await joined(conn, group, "again"))
        conn.close()
        for name, times in (("new", new), ("known", known)):
            ms = sorted(round(1000 * t) for t in times)
            print(f"join to partitions, {name} state: median {ms[len(ms) // 2]} ms, most {ms[-1]} ms")

    asyncio.run(test())


def test_offsets_are_altered_when_the_group_has_no_members(kafka: LocalKafka) -> None:
    async def alter(group: str) -> al.AlterShareGroupOffsetsResponse:
        conn = await BrokerConnection.open("127.0.0.1", kafka.nodes[0].sidecar_port, "test")
        part = al.AlterShareGroupOffsetsRequestPartition(0, 0)
        topics = [al.AlterShareGroupOffsetsRequestTopic(TOPIC, [part])]
        res = await conn.request(al, "AlterShareGroupOffsets", al.AlterShareGroupOffsetsRequest(group, topics))
        conn.close()
        assert isinstance(res, al.AlterShareGroupOffsetsResponse)
        return res

    async def test() -> None:
        busy = await alter("managed-new-0")
        assert (busy.error_code, busy.error_message) == (Code.NON_EMPTY_GROUP, "The group is not empty.")
        conn = await BrokerConnection.open("127.0.0.1", kafka.nodes[0].sidecar_port, "test")
        await conn.request(sh, "ShareGroupHeartbeat", sh.ShareGroupHeartbeatRequest("managed-new-0", "again", -1))
        conn.close()
        free = await alter("managed-new-0")
        assert free.error_code == Code.NONE
        assert [p.error_code for t in free.responses for p in t.partitions] == [Code.NONE]

    asyncio.run(test())
