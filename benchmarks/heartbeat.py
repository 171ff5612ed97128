"""Heartbeats per second and CPU seconds per 100,000 of them: the sidecar against the same broker's own coordinator.

    make bench NAME=heartbeat [ARGS="--members 100 --seconds 6 --rounds 3"]

Both sides get the same load generator in the same run, in alternating rounds. The members of a real group (KIP-848)
join and settle; then each connection keeps `--depth` heartbeats under way. A reply with an error fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from struct import Struct

import uvloop

from benchmarks.common import cpu_s, create_topic, finish, median, one_broker
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import KAFKA
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch

TOPIC, PARTITIONS = "bench", 100
SIZE = Struct(">i")


class Member(asyncio.Protocol):
    """A settled member on its own connection. It sends blocks of `depth` heartbeats back to back."""

    def __init__(self, frame: bytes, depth: int) -> None:
        self.block = frame * depth
        self.depth = depth
        self.done = 0
        self.running = False
        self.owed = 0
        self.error = 0
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def go(self) -> None:
        self.running = True
        self.owed = self.depth
        self.transport.write(self.block)

    def data_received(self, data: bytes) -> None:
        buf = self.buffer + data if self.buffer else data
        pos, end = 0, len(buf)
        while end - pos >= 4:
            (size,) = SIZE.unpack_from(buf, pos)
            if end - pos < 4 + size:
                break
            self.error |= buf[pos + 13] | buf[pos + 14]  # error code, after header (5) and throttle time (4)
            pos += 4 + size
            self.owed -= 1
            self.done += 1
        self.buffer = buf[pos:]
        if self.owed == 0 and self.running:
            self.owed = self.depth
            self.transport.write(self.block)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.running:
            self.error = -1


async def join(host: str, port: int, group: str, members: int, security: Security = PLAINTEXT) -> list[bytes]:
    """Let all members join and heartbeat until nobody's epoch or assignment changes; return their steady requests."""
    conns = [await BrokerConnection.open(host, port, f"bench-{i}", security=security) for i in range(members)]
    epochs = [0] * members
    owned: list[list[ch.TopicPartitions]] = [[] for _ in range(members)]
    calm, until = 0, time.monotonic() + 120
    while calm < 3:
        if time.monotonic() > until:
            raise RuntimeError(f"group {group} did not settle")
        changed = False
        for i, conn in enumerate(conns):
            req = ch.ConsumerGroupHeartbeatRequest(group_id=group, member_id=f"member-{i:05d}", member_epoch=epochs[i])
            if epochs[i] == 0:
                req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 60_000, [TOPIC], []
            else:
                req.topic_partitions = owned[i]
            res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
            if res.error_code != Code.NONE:
                raise RuntimeError(f"{group}: {Code(res.error_code).name} {res.error_message}")
            if res.assignment is not None:
                parts = res.assignment.topic_partitions
                owned[i] = [ch.TopicPartitions(t.topic_id, t.partitions) for t in parts]
            changed |= res.member_epoch != epochs[i] or res.assignment is not None
            epochs[i] = res.member_epoch
        calm = 0 if changed else calm + 1
        await asyncio.sleep(0.3)
    for conn in conns:
        conn.close()
    frames = []
    for i in range(members):
        steady = ch.ConsumerGroupHeartbeatRequest(group_id=group, member_id=f"member-{i:05d}", member_epoch=epochs[i])
        frames.append(request_frame(68, 1, 1, f"bench-{i}", True, steady.encode(1)))
    return frames


async def load(host: str, port: int, frames: list[bytes], depth: int, seconds: float) -> float:
    """Return the heartbeats per second."""
    loop = asyncio.get_running_loop()
    members = []
    for frame in frames:
        _, m = await loop.create_connection(lambda f=frame: Member(f, depth), host, port)  # type: ignore[misc]
        members.append(m)
    for m in members:
        m.go()
    await asyncio.sleep(0.5)
    before, start = sum(m.done for m in members), time.monotonic()
    await asyncio.sleep(seconds)
    done, took = sum(m.done for m in members) - before, time.monotonic() - start
    for m in members:
        m.running = False
        m.transport.close()
    if any(m.error for m in members):
        raise RuntimeError("a heartbeat was answered with an error")
    return done / took


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--members", type=int, default=100)
    ap.add_argument("--depth", type=int, default=10)
    ap.add_argument("--seconds", type=float, default=6.0)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--no-memo", action="store_true", help="every heartbeat goes through the state machine")
    a = ap.parse_args()
    rates: dict[str, list[float]] = {"sidecar": [], "broker": []}
    cpus: dict[str, list[float]] = {"sidecar": [], "broker": []}
    env = {"SIDECAR_LIMITS__STEADY_REPLIES": "0"} if a.no_memo else {}
    with one_broker("bench-sidecar.*", env) as kafka:
        create_topic(kafka, TOPIC, PARTITIONS)
        node = kafka.nodes[0]
        sides = {"sidecar": (node.sidecar_port, node.sidecar), "broker": (node.internal_port, node.process)}
        time.sleep(3)

        async def run() -> None:
            frames = {
                side: await join("127.0.0.1", port, f"bench-{side}", a.members) for side, (port, _) in sides.items()
            }
            for side, (port, _) in sides.items():  # the JVM compiles, the sidecar fills its caches
                await load("127.0.0.1", port, frames[side], a.depth, max(a.seconds, 8) if side == "broker" else 2)
            for n in range(a.rounds):
                for side, (port, process) in sides.items():
                    before = cpu_s(process)
                    rate = await load("127.0.0.1", port, frames[side], a.depth, a.seconds)
                    used = (cpu_s(process) - before) / (rate * (a.seconds + 0.5)) * 100_000
                    rates[side].append(rate)
                    cpus[side].append(used)
                    print(f"round {n + 1}  {side:8} {rate:9,.0f} heartbeats/s  {used:6.2f} CPU s per 100k", flush=True)

        uvloop.run(run())
    rate = {s: median(v) for s, v in rates.items()}
    cpu = {s: median(v) for s, v in cpus.items()}
    finish(
        {
            "bench": "heartbeat",
            "peer": f"Kafka {KAFKA} broker's own coordinator",
            "members": a.members,
            "memo": not a.no_memo,
            "sidecar_per_s": round(rate["sidecar"]),
            "broker_per_s": round(rate["broker"]),
            "sidecar_cpu_s_per_100k": round(cpu["sidecar"], 3),
            "broker_cpu_s_per_100k": round(cpu["broker"], 3),
            "ratio_rate": round(rate["sidecar"] / rate["broker"], 3),
            "ratio_cpu": round(cpu["sidecar"] / cpu["broker"], 3),
        }
    )


if __name__ == "__main__":
    main()
