"""Measures what assignments cost other groups: how long these wait while a group of 1,000 is assigned again and again.

    make bench NAME=offload [ARGS="--seconds 10 --partitions 5"]

Each row is one coordinator under the same load generator. 1,000 members, each subscribed to a fifth of 1,000 topics,
are steady. One more joins and leaves all the time, so that there is always an assignment to compute (interval 0).
`stall` is how late the sidecar's event loop gets to something that is due. `heartbeat` is the latency of a member of
another group, which heartbeats every 4 ms. With "free core" the event loop's thread has a core to itself, and its
background threads, the broker and the generator share the others. With "shared" they all share all cores, and the
sidecar is preferred. The rows with 50,000 partitions are the KIP's load. One test broker holds fewer, so Kafka's row,
and one of ours beside it, have `--partitions` in each topic. Finally, 1,000 members join within a second under
KIP-1263's default of one assignment per second, and the time counts until all have their partitions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from benchmarks.common import cpu_s, finish
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import KAFKA
from sidecar.drill.local import JVM_FAST, LocalKafka
from sidecar.drill.percentiles import percentile
from sidecar.drill.processes import Process
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_heartbeat as ch

TOPICS = 1_000
SHARE = 5
CONNECTIONS = 20
PROBE_S = 0.004
SETTLES_S = 120.0
STEADY_S = 5.0
PAUSE_S = 0.02
NICE = 15
NAMES = [f"load-{i:04d}" for i in range(TOPICS)]


@dataclass
class Member:
    conn: BrokerConnection
    group: str
    member_id: str
    names: list[str]
    epoch: int = 0
    owned: list[ch.TopicPartitions] = field(default_factory=list)

    async def beat(self) -> ch.ConsumerGroupHeartbeatResponse:
        req = ch.ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.epoch)
        if self.epoch == 0:
            req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 60_000, self.names, []
        else:
            req.topic_partitions = self.owned
        res: ch.ConsumerGroupHeartbeatResponse = await self.conn.request(
            ch, "ConsumerGroupHeartbeat", req, timeout_s=60
        )
        if res.error_code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, []
        elif res.error_code != Code.NONE:
            raise RuntimeError(f"{self.member_id}: {Code(res.error_code).name} {res.error_message}")
        else:
            self.epoch = res.member_epoch
            if res.assignment is not None:
                self.owned = [ch.TopicPartitions(t.topic_id, t.partitions) for t in res.assignment.topic_partitions]
        return res

    async def leave(self) -> None:
        req = ch.ConsumerGroupHeartbeatRequest(self.group, self.member_id, -1)
        await self.conn.request(ch, "ConsumerGroupHeartbeat", req, timeout_s=60)
        self.epoch, self.owned = 0, []


class Load:
    """Members of one group over a few connections, each with its own share of the topics."""

    def __init__(self, port: int, group: str, members: int) -> None:
        self.port, self.group, self.count = port, group, members
        self.members: list[Member] = []
        self.conns: list[BrokerConnection] = []
        self.done = False

    async def open(self) -> None:
        self.conns = [await BrokerConnection.open("127.0.0.1", self.port, "load") for _ in range(CONNECTIONS)]
        size = TOPICS // SHARE
        for i in range(self.count):
            names = NAMES[i % SHARE * size : (i % SHARE + 1) * size]
            self.members.append(Member(self.conns[i % CONNECTIONS], self.group, f"member-{i:05d}", names))

    async def beat_all(self) -> None:
        await asyncio.gather(*(m.beat() for m in self.members))

    def partitions(self) -> int:
        return sum(len(t.partitions) for m in self.members for t in m.owned)

    def close(self) -> None:
        for c in self.conns:
            c.close()


async def churn(load: Load, seconds: float, probe_port: int, pause_s: float) -> tuple[list[float], int]:
    """Return a bystander's heartbeat latencies in ms, and how often a member joined and left. `pause_s` is the time
    between a leave and the next join; with 0 nobody joins."""
    bystander = Member(
        await BrokerConnection.open("127.0.0.1", probe_port, "probe"), load.group + "-other", "p", NAMES[:1]
    )
    await bystander.beat()
    await asyncio.sleep(1)
    await bystander.beat()
    conn = await BrokerConnection.open("127.0.0.1", load.port, "churn")
    extra = Member(conn, load.group, "extra", NAMES[: TOPICS // SHARE])
    end = time.monotonic() + seconds
    latencies: list[float] = []
    turns = 0

    async def join_and_leave() -> None:
        nonlocal turns
        while pause_s and time.monotonic() < end:
            await extra.beat()
            await extra.leave()
            turns += 1
            await asyncio.sleep(pause_s)

    async def steady() -> None:
        n = 0
        pause = STEADY_S / len(load.members)
        while time.monotonic() < end:
            await load.members[n % len(load.members)].beat()
            n += 1
            await asyncio.sleep(pause)

    async def probe() -> None:
        while time.monotonic() < end:
            start = time.perf_counter()
            await bystander.beat()
            latencies.append((time.perf_counter() - start) * 1000)
            await asyncio.sleep(PROBE_S)

    await asyncio.gather(join_and_leave(), steady(), probe())
    extra.conn.close()
    bystander.conn.close()
    return latencies, turns


async def storm(port: int, group: str, members: int, wanted: int) -> tuple[float, int]:
    """Let all members join within a second. Return how many seconds later they have all partitions, and how many epochs
    they saw. Raises TimeoutError if they do not get them."""
    load = Load(port, group, members)
    await load.open()
    start = time.monotonic()

    async def one(i: int, m: Member) -> None:
        await asyncio.sleep(i / members)
        while time.monotonic() - start < SETTLES_S:
            res = await m.beat()
            seen.add(m.epoch)
            if load.done:
                return
            await asyncio.sleep(min(1.0, res.heartbeat_interval_ms / 1000))

    seen: set[int] = set()

    async def look() -> float:
        while time.monotonic() - start < SETTLES_S:
            await asyncio.sleep(0.05)
            if load.partitions() == wanted and len({m.epoch for m in load.members}) == 1:
                load.done = True
                return time.monotonic() - start
        have = f"{load.partitions()} of {wanted} partitions"
        raise TimeoutError(f"{group}: its members have {have} after {SETTLES_S:g} s")

    joined = asyncio.gather(*(one(i, m) for i, m in enumerate(load.members)))
    try:
        took = await look()
        await joined
    finally:
        joined.cancel()
        load.close()
    return took, len(seen)


def watched(kafka: LocalKafka, path: Path) -> dict[str, float]:
    process = kafka.nodes[0].sidecar
    assert process is not None
    path.unlink(missing_ok=True)
    os.kill(process.worker_pid, signal.SIGUSR1)
    while not path.exists():
        time.sleep(0.01)
    found: dict[str, float] = json.loads(path.read_text())
    return found


def interval(kafka: LocalKafka, ms: str) -> None:
    """Set KIP-1263's assignment interval at the broker. It holds for both sides, as the sidecar takes it from there."""
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    entry = ConfigEntry("group.consumer.assignment.interval.ms", ms, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)
    time.sleep(4)


def prefer(pid: int, nice: int) -> None:
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(nice))


def renice(process: Process | None, nice: int) -> None:
    """Renice all threads of a process. Where Linux groups processes by session (autogroup) its group is reniced, too,
    because `nice` only counts within a group. Becoming less nice again needs root; a refusal is raised."""
    assert process is not None
    prefer(process.worker_pid, nice)
    for thread in os.listdir(f"/proc/{process.worker_pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def place(sidecar: Process | None, broker: Process | None, free: bool) -> None:
    """Pin the threads to cores. With `free` the last core is for the event loop alone."""
    assert sidecar is not None and broker is not None
    cores = sorted(os.sched_getaffinity(1))
    if free and len(cores) < 2:
        raise SystemExit("a free core for the event loop needs a machine with two cores")
    others = set(cores[:-1]) if free else set(cores)
    for pid in (sidecar.worker_pid, broker.pid, os.getpid()):
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {cores[-1]} if free and int(thread) == sidecar.worker_pid else others)


def metric(kafka: LocalKafka, name: str) -> float:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{kafka.nodes[0].admin_port}/metrics", timeout=10) as res:
        for line in res.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    return 0.0


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--members", type=int, default=1_000)
    ap.add_argument("--partitions", type=int, default=5, help="of each real topic, for the rows beside Kafka's")
    ap.add_argument("--interval", default="1000", help="assignment interval of the last rows, ms")
    ap.add_argument("--seconds", type=float, default=10.0)
    a = ap.parse_args()
    name = 'sidecar_assignments_total{assignor="uniform"}'
    os.nice(NICE)
    prefer(os.getpid(), NICE)
    figures: dict[str, object] = {"bench": "offload", "peer": f"Kafka {KAFKA}'s own coordinator", "members": a.members}
    print(f"{'':44}{'stall p50':>10}{'p99':>8}{'max':>8}   {'heartbeat p50':>13}{'p99':>8}{'max':>8}  ms", flush=True)
    rows = [
        ("sidecar, nothing to assign, free core", "50", "true", True, 0.0),
        ("sidecar, offload on, 50,000 p., free core", "50", "true", True, PAUSE_S),
        ("sidecar, offload on, 50,000 p., shared", "50", "true", False, PAUSE_S),
        ("sidecar, offload off, 50,000 p., free core", "50", "false", True, PAUSE_S),
        (f"sidecar, offload on, {a.partitions * TOPICS:,} p., shared", "", "true", False, PAUSE_S),
        (f"Kafka, {a.partitions * TOPICS:,} p., shared", "", "", False, PAUSE_S),
    ]
    with tempfile.TemporaryDirectory(prefix="sidecar-offload-") as tmp, ExitStack() as stack:
        clusters: dict[str, LocalKafka] = {}
        for title, fake, offload, free, pause_s in rows:
            key = f"{fake}/{offload or 'true'}"
            watch = Path(tmp) / f"watch-{fake}{offload or 'true'}.json"
            if key not in clusters:
                for old in clusters.values():
                    old.stop()
                env = {
                    "SIDECAR_GROUPS__INCLUDE": '["sidecar-.*"]',
                    "SIDECAR_LOG__LEVEL": "warning",
                    "SIDECAR_CONSUMER__ASSIGNOR_OFFLOAD_ENABLE": offload,
                    "WATCH_FILE": str(watch),
                    "FAKE_TOPICS": f"{TOPICS}x{fake}" if fake else "0x0",
                }
                properties = {"group.consumer.assignment.interval.ms": "0", "group.consumer.max.size": "100000"}
                kafka = LocalKafka(
                    Path(tmp) / key.replace("/", "-"),
                    brokers=1,
                    properties=properties,
                    sidecar_env=env,
                    jvm=JVM_FAST,
                    sidecar_main="benchmarks.watched",
                )
                stack.enter_context(kafka)
                kafka.wait_ready()
                if not fake:
                    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
                    made = admin.create_topics([NewTopic(n, a.partitions, 1) for n in NAMES], operation_timeout=120)
                    for future in made.values():
                        future.result(timeout=180)
                    time.sleep(5)
                clusters[key] = kafka
            kafka = clusters[key]
            node = kafka.nodes[0]
            theirs = not offload
            port = node.internal_port if theirs else node.sidecar_port
            process = node.process if theirs else node.sidecar

            async def run(
                process: Process | None = process,
                pause_s: float = pause_s,
                port: int = port,
                kafka: LocalKafka = kafka,
                watch: Path = watch,
                theirs: bool = theirs,
                free: bool = free,
            ) -> tuple[list[float], int, dict[str, float], float]:
                load = Load(port, "kafka-load" if theirs else "sidecar-load", a.members)
                await load.open()
                for _ in range(8):
                    await load.beat_all()
                    await asyncio.sleep(0.3)
                if not theirs:
                    await asyncio.to_thread(watched, kafka, watch)
                place(kafka.nodes[0].sidecar, kafka.nodes[0].process, free)
                before = cpu_s(process)
                latencies, turns = await churn(load, a.seconds, port, pause_s)
                used = cpu_s(process) - before
                stall = {} if theirs else await asyncio.to_thread(watched, kafka, watch)
                load.close()
                place(kafka.nodes[0].sidecar, kafka.nodes[0].process, False)
                return latencies, turns, stall, used

            # The others are nicer, so that what is measured has a core when it wants one, as far as two cores allow.
            for other, nice in ((node.process, 0 if theirs else NICE), (node.sidecar, NICE if theirs else 0)):
                renice(other, nice)
            latencies, turns, stall, used = uvloop.run(run())
            lat = {q: percentile(latencies, v) for q, v in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
            stalls = (
                "".join(f"{stall[q]:{w}.2f}" for q, w in (("p50", 10), ("p99", 8), ("max", 8)))
                if stall
                else f"{'-':>10}{'-':>8}{'-':>8}"
            )
            waits = f"{lat['p50']:13.2f}{lat['p99']:8.2f}{lat['max']:8.2f}"
            print(f"{title:44}{stalls}   {waits}  {turns} joins and leaves, {used:.1f} CPU s", flush=True)
            figures[title] = {
                **{f"stall_{k}_ms": round(v, 3) for k, v in stall.items() if k != "cpu_s"},
                **{f"heartbeat_{k}_ms": round(v, 3) for k, v in lat.items()},
                "turns": turns,
                "cpu_s": round(used, 2),
            }
        kafka = clusters["/true"]
        node = kafka.nodes[0]
        interval(kafka, a.interval)
        for side, port, process in (
            ("sidecar", node.sidecar_port, node.sidecar),
            ("kafka", node.internal_port, node.process),
        ):
            before, runs = cpu_s(process), metric(kafka, name)
            took, seen = uvloop.run(storm(port, f"{side}-storm", a.members, a.partitions * TOPICS))
            used = cpu_s(process) - before
            mine = f"{metric(kafka, name) - runs:.0f} assignments, " if side == "sidecar" else ""
            print(
                f"{a.members} members join within a second, {side:8} all settled in {took:5.1f} s, "
                f"{mine}members saw {seen} epochs, {used:.1f} CPU s",
                flush=True,
            )
            figures[f"storm, {side}"] = {"settled_s": round(took, 2), "epochs_seen": seen, "cpu_s": round(used, 2)}
            if side == "sidecar":
                figures["storm, assignments"] = metric(kafka, name) - runs
    finish(figures)


if __name__ == "__main__":
    main()
