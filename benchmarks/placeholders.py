"""Measures the cost of placeholders: many groups with members at one broker, and one client that commits.

    make bench NAME=placeholders [ARGS="--groups 1000"]

Groups are new to the broker first (each JoinGroup waits for group.initial.rebalance.delay.ms, 3 s), then taken over by
a sidecar that was killed and started again. A session of 30 s makes ten times as many heartbeats as the default, so
that their CPU can be seen. Commits go one after the other over one connection, of a group with a placeholder, and of a
simple consumer, whose commits need none.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import urllib.request

from benchmarks.common import cpu_s, create_topic, median, one_broker
from sidecar.drill.local import LocalKafka
from sidecar.drill.percentiles import percentile
from sidecar.drill.processes import wait_until
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import offset_commit as oc

TOPIC = "t"
SESSION_MS = 30_000
IDLE_S = 20.0
ENV = {
    "SIDECAR_OFFSETS__PLACEHOLDER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    "SIDECAR_METADATA_REFRESH_MS": "300",
    "SIDECAR_CONSUMER__SESSION_TIMEOUT_MS": "600000",
    "SIDECAR_CONSUMER__MAX_SESSION_TIMEOUT_MS": "600000",
}
PROPERTIES = {"group.initial.rebalance.delay.ms": "3000"}


def all_joined(kafka: LocalKafka) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{kafka.nodes[0].admin_port}/metrics", timeout=5) as res:
        lines = res.read().decode().splitlines()
    return int(float(next(x for x in lines if x.startswith("sidecar_placeholders_joined ")).split()[1]))


def hello(group: str) -> ch.ConsumerGroupHeartbeatRequest:
    return ch.ConsumerGroupHeartbeatRequest(
        group, "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
    )


async def join(port: int, groups: int) -> None:
    conn = await BrokerConnection.open("127.0.0.1", port, "bench")
    for start in range(0, groups, 100):
        ids = [f"managed-{i}" for i in range(start, min(start + 100, groups))]
        requests = [conn.request(ch, "ConsumerGroupHeartbeat", hello(g), timeout_s=60) for g in ids]
        assert {r.error_code for r in await asyncio.gather(*requests)} == {0}
    conn.close()


async def commits(port: int, group: str, member: str, count: int) -> list[float]:
    """Milliseconds of each, one after the other."""
    conn = await BrokerConnection.open("127.0.0.1", port, "bench")
    epoch = (await conn.request(ch, "ConsumerGroupHeartbeat", hello(group))).member_epoch if member else -1
    took = []
    for i in range(count):
        topic = oc.OffsetCommitRequestTopic(TOPIC, partitions=[oc.OffsetCommitRequestPartition(0, i)])
        req = oc.OffsetCommitRequest(group, epoch, member, topics=[topic])
        begun = time.perf_counter()
        res = await conn.request(oc, "OffsetCommit", req, high=9)
        took.append((time.perf_counter() - begun) * 1000)
        assert res.topics[0].partitions[0].error_code == 0, res
    conn.close()
    return took


def committing(kafka: LocalKafka, what: str, group: str, member: str, count: int) -> None:
    ms = asyncio.run(commits(kafka.nodes[0].sidecar_port, group, member, count))
    print(f"commit, {what}: p50 {median(ms):.2f} ms, p99 {percentile(ms, 0.99):.2f} ms", flush=True)


def idle(kafka: LocalKafka, groups: int) -> None:
    node = kafka.nodes[0]
    before = cpu_s(node.sidecar), cpu_s(node.process)
    time.sleep(IDLE_S)
    sidecar, broker = cpu_s(node.sidecar) - before[0], cpu_s(node.process) - before[1]
    rate = groups / (SESSION_MS / 3000)
    print(f"idle, {rate:.0f} heartbeats/s: sidecar {sidecar / IDLE_S:.1%}, broker {broker / IDLE_S:.1%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=2000)
    args = parser.parse_args()
    with one_broker("managed.*", ENV, PROPERTIES) as kafka:
        create_topic(kafka, TOPIC, 4)
        time.sleep(1)
        node = kafka.nodes[0]
        begun = time.monotonic()
        asyncio.run(join(node.sidecar_port, args.groups))
        joined = time.monotonic()
        wait_until("the placeholders", lambda: all_joined(kafka) == args.groups, 300)
        print(f"{args.groups} new groups: joined {joined - begun:.1f} s, all joined {time.monotonic() - begun:.1f} s")
        for _ in range(2):
            committing(kafka, "placeholder", "managed-0", "m", args.commits)
            committing(kafka, "simple consumer", "managed-none", "", args.commits)
        idle(kafka, args.groups)
        assert node.sidecar is not None
        node.sidecar.kill()
        begun = time.monotonic()
        kafka.start_sidecar(node)
        kafka.wait_ready()
        ready = time.monotonic()
        wait_until("the placeholders", lambda: all_joined(kafka) == args.groups, 120)
        print(f"takeover: ready {ready - begun:.1f} s, all joined {time.monotonic() - ready:.1f} s later")


if __name__ == "__main__":
    main()
