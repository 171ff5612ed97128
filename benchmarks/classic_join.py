"""A large classic group joins and rebalances: time until it is stable, CPU and peak memory, against the broker's own
coordinator.

    make bench NAME=classic-join [ARGS="--members 2000 --bytes 1024 --rounds 3"]

Every member has a connection of its own and brings a subscription of `--bytes`; the leader gets all of them, 2 MB of
2,000 members. Both sides get the same load generator in the same run, in alternating rounds, and a group that is new
in each round. `join`: from the first request of an empty group until everybody has an assignment, with the initial
rebalance delay of `--delay-ms` in it. `rebalance`: all members join again with another subscription; nothing in it
waits for a clock.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from pathlib import Path

import uvloop

from benchmarks.common import cpu_s, finish, median, one_broker
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import KAFKA
from sidecar.drill.processes import Process
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.frames import response_body
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sy

TIMEOUT_MS = 300_000
OPEN_AT_ONCE = 100


class Member:
    def __init__(self, conn: BrokerConnection, group: str, size: int) -> None:
        self.conn, self.group, self.size = conn, group, size
        self.id = ""
        self.generation = -1
        self.others: list[str] = []

    async def join(self, salt: int) -> None:
        """Returns when the join phase is over."""
        metadata = b"\0\1" + salt.to_bytes(2, "big") + bytes(self.size - 4)
        req = jg.JoinGroupRequest(self.group, TIMEOUT_MS, TIMEOUT_MS, self.id, None, "bench")
        req.protocols = [jg.JoinGroupRequestProtocol("bench", metadata)]
        while True:
            version, flexible, raw = self.conn.start(jg, "JoinGroup", req)
            frame = await raw
            res = jg.JoinGroupResponse.decode(version, frame, response_body(frame, flexible))
            if res.error_code != Code.MEMBER_ID_REQUIRED:
                break
            req.member_id = self.id = res.member_id
        if res.error_code:
            raise RuntimeError(f"JoinGroup: {Code(res.error_code).name}")
        self.generation = res.generation_id
        self.others = [m.member_id for m in res.members]

    async def sync(self) -> None:
        req = sy.SyncGroupRequest(self.group, self.generation, self.id, None, "bench", "bench")
        req.assignments = [sy.SyncGroupRequestAssignment(m, b"assigned to " + m.encode()) for m in self.others]
        version, flexible, raw = self.conn.start(sy, "SyncGroup", req)
        frame = await raw
        res = sy.SyncGroupResponse.decode(version, frame, response_body(frame, flexible))
        if res.error_code or res.assignment != b"assigned to " + self.id.encode():
            raise RuntimeError(f"SyncGroup: {Code(res.error_code).name} {res.assignment!r}")

    async def round(self, salt: int) -> None:
        await self.join(salt)
        await self.sync()


async def members(port: int, group: str, a: argparse.Namespace) -> list[Member]:
    found: list[Member] = []
    for first in range(0, a.members, OPEN_AT_ONCE):
        numbers = range(first, min(first + OPEN_AT_ONCE, a.members))
        conns = await asyncio.gather(*(BrokerConnection.open("127.0.0.1", port, f"bench-{i}", 60) for i in numbers))
        found += [Member(c, group, a.bytes) for c in conns]
    return found


async def timed(all_of: list[Member], salt: int, process: Process | None) -> tuple[float, float]:
    """Seconds until the group is stable, and CPU seconds of the process meanwhile."""
    gc.collect()
    start, before = time.monotonic(), cpu_s(process)
    await asyncio.gather(*(m.round(salt) for m in all_of))
    return time.monotonic() - start, cpu_s(process) - before


def peak_mib(process: Process | None) -> float:
    assert process is not None
    status = Path(f"/proc/{process.worker_pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--members", type=int, default=2_000)
    ap.add_argument("--bytes", type=int, default=1_024)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--delay-ms", type=int, default=1_000)
    a = ap.parse_args()
    figures: dict[str, list[float]] = {}
    # Kafka writes a whole group in one record, which does not fit its default of 1 MiB.
    properties = {"group.initial.rebalance.delay.ms": str(a.delay_ms), "message.max.bytes": str(64 << 20)}
    with one_broker("bench-sidecar.*", {}, properties) as kafka:
        node = kafka.nodes[0]
        sides = {"sidecar": (node.sidecar_port, node.sidecar), "broker": (node.internal_port, node.process)}
        time.sleep(2)

        async def run() -> None:
            for n in range(-1, a.rounds):  # the round before the first: the JVM compiles, the sidecar fills its caches
                for side, (port, process) in sides.items():
                    group = await members(port, f"bench-{side}-{n}", a)
                    for what, salt in (("join", 1), ("rebalance", 2)):
                        took, used = await timed(group, salt, process)
                        if n >= 0:
                            figures.setdefault(f"{side}_{what}_s", []).append(took)
                            figures.setdefault(f"{side}_{what}_cpu_s", []).append(used)
                            row = f"round {n + 1}  {side:8} {what:10} {took:6.2f} s  {used:6.2f} CPU s"
                            print(f"{row}  peak {peak_mib(process):6.0f} MiB", flush=True)
                    for m in group:
                        m.conn.close()

        uvloop.run(run())
        peaks = {f"{side}_peak_mib": round(peak_mib(process)) for side, (_, process) in sides.items()}
    mid = {name: median(values) for name, values in figures.items()}
    finish(
        {
            "bench": "classic-join",
            "peer": f"Kafka {KAFKA} broker's own coordinator",
            "members": a.members,
            "subscription_bytes": a.bytes,
            **{name: round(value, 3) for name, value in mid.items()},
            **peaks,
            "ratio_time": round(mid["sidecar_rebalance_s"] / mid["broker_rebalance_s"], 3),
            "ratio_cpu": round(mid["sidecar_rebalance_cpu_s"] / mid["broker_rebalance_cpu_s"], 3),
            "ratio_join_time": round(mid["sidecar_join_s"] / mid["broker_join_s"], 3),
            "ratio_join_cpu": round(mid["sidecar_join_cpu_s"] / mid["broker_join_cpu_s"], 3),
        }
    )


if __name__ == "__main__":
    main()
