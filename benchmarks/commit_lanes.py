"""Commits of groups whose offsets another broker keeps, with one and with several lanes to that broker.

    make bench NAME=commit-lanes [ARGS="--lanes 1,2,4,8,16 --clients 64"]

There are two brokers, and a sidecar beside the first one only. So it owns all groups, and commits of those whose
offsets the second broker leads go there over `offsets.commit_lanes` connections. Each client commits one offset after
the other, of a group without members. In turns with that the same number of clients commit at the second broker
itself; `ratio` is commits a second at the sidecar for each of those there, the median of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.common import PROPERTIES, create_topic, finish, median
from sidecar.core.vocabulary.errors import name_of
from sidecar.drill.local import JVM_FAST, LocalKafka
from sidecar.drill.percentiles import percentile
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import offset_commit as oc

HOST, TOPIC, GROUPS = "127.0.0.1", "bench", 8
VERSION = 8
WARM_S = 1.0


async def led_by(kafka: LocalKafka, node_id: int, prefix: str) -> list[str]:
    """Names of groups whose offsets this broker keeps."""
    cluster = Cluster([(HOST, n.internal_port) for n in kafka.nodes], "bench", {})
    found: list[str] = []
    i, end_s = 0, time.monotonic() + 30
    while len(found) < GROUPS:
        name = f"{prefix}-{i}"
        try:
            if await cluster.coordinator_node(name, 0) == node_id:
                found.append(name)
            i += 1
        except ConnectionLost:  # asking makes the topic of offsets, which takes a while
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.2)
    cluster.close()
    return found


async def client(conn: BrokerConnection, group: str, until_s: float, count_from_s: float) -> list[float]:
    """Milliseconds of each commit, one after the other. What comes before it is counted may fail."""
    took: list[float] = []
    offset = 0
    while (at_s := time.monotonic()) < until_s:
        offset += 1
        partition = oc.OffsetCommitRequestPartition(0, offset)
        req = oc.OffsetCommitRequest(group, topics=[oc.OffsetCommitRequestTopic(TOPIC, partitions=[partition])])
        res = await conn.request(oc, "OffsetCommit", req, high=VERSION)
        code = res.topics[0].partitions[0].error_code
        if code and at_s >= count_from_s:
            raise RuntimeError(f"{group}: {name_of(code)}")
        if code:
            await asyncio.sleep(0.1)
        elif at_s >= count_from_s:
            took.append((time.monotonic() - at_s) * 1000)
    return took


async def load(port: int, groups: list[str], clients: int, seconds: float, warm_s: float = WARM_S) -> dict[str, float]:
    conns = [await BrokerConnection.open(HOST, port, f"bench-{i}") for i in range(clients)]
    begin_s = time.monotonic() + warm_s
    work = [client(c, groups[i % GROUPS], begin_s + seconds, begin_s) for i, c in enumerate(conns)]
    took = [ms for each in await asyncio.gather(*work) for ms in each]
    for conn in conns:
        conn.close()
    return {"per_s": len(took) / seconds, "p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lanes", default="1,2,4,8,16")
    ap.add_argument("--clients", type=int, default=64)
    ap.add_argument("--seconds", type=float, default=4.0)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    env = {"SIDECAR_GROUPS__INCLUDE": '["bench-sidecar.*"]', "SIDECAR_LOG__LEVEL": "warning"}
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        kafka = LocalKafka(Path(tmp) / "run", brokers=2, properties=PROPERTIES, sidecar_env=env, jvm=JVM_FAST)
        try:
            kafka.start_brokers()
            beside, away = kafka.nodes
            create_topic(kafka, TOPIC, 1)
            ours, theirs = (uvloop.run(led_by(kafka, away.node_id, f"bench-{side}")) for side in ("sidecar", "broker"))
            uvloop.run(load(away.internal_port, theirs, a.clients, 1.0, 8.0))  # the JVM compiles
            for lanes in map(int, a.lanes.split(",")):
                kafka.sidecar_env = {**env, "SIDECAR_OFFSETS__COMMIT_LANES": str(lanes)}
                kafka.start_sidecar(beside)
                kafka.wait_ready()
                rows[str(lanes)] = measured(beside.sidecar_port, away.internal_port, ours, theirs, a)
                assert beside.sidecar is not None
                beside.sidecar.stop()
        finally:
            kafka.stop()
    finish({"bench": "commit_lanes", "clients": a.clients, "lanes": rows})


def measured(
    sidecar_port: int, broker_port: int, ours: list[str], theirs: list[str], a: argparse.Namespace
) -> dict[str, float]:
    """Both in turns; the medians of all rounds."""
    rounds = []
    for _ in range(a.rounds):
        broker = uvloop.run(load(broker_port, theirs, a.clients, a.seconds))
        sidecar = uvloop.run(load(sidecar_port, ours, a.clients, a.seconds))
        rounds.append({"ratio": sidecar["per_s"] / broker["per_s"], "broker_per_s": broker["per_s"], **sidecar})
    return {name: round(median([r[name] for r in rounds]), 2) for name in rounds[0]}


if __name__ == "__main__":
    main()
