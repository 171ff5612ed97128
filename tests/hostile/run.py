"""Well-behaved clients beside hostile ones, at the sidecar and, in the same run, at the broker itself.

    python -m tests.hostile.run [--seconds 6] [--only half_open,heartbeats] [--base PATH]

Two bystanders go on throughout, each with one request at a time: a member's heartbeats, which the sidecar answers, and
Metadata requests, which pass to the broker. The table has their p99 without and with each attack ("inf": it was not
served any more), how many of the attacker's connections were closed by the other side, and the resident memory of the
process that is attacked before, at most, and two seconds after, and how much of a core it uses then. `--base`: a
checkout of another version, whose sidecar is run instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.common import cpu_s, create_topic, one_broker, percentile
from benchmarks.heartbeat import PARTITIONS, TOPIC, join
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process
from sidecar.wire.frames import SIZE, request_frame
from sidecar.wire.generated import metadata as md
from tests.hostile.attacks import ATTACKS, DATA, HOST

PACE_S = 0.002
MIB = 1 << 20


def fill(kafka: LocalKafka) -> None:
    """Two MB for those who fetch."""
    create_topic(kafka, DATA, 1)
    producer = Producer({"bootstrap.servers": kafka.internal})
    for _ in range(200):
        producer.produce(DATA, b"x" * 10_000)
    if producer.flush(30):
        raise RuntimeError("the topic could not be filled")


class Bystander(threading.Thread):
    """One request at a time, every 2 ms, on one connection; a reply that does not come in 20 s ends it."""

    def __init__(self, port: int, frame: bytes) -> None:
        super().__init__(daemon=True)
        self.sock = socket.create_connection((HOST, port), timeout=20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = frame
        self.times_ms: list[float] = []
        self.broken = ""
        self.over = False

    def run(self) -> None:
        try:
            while not self.over:
                self.times_ms.append(self.once())
                time.sleep(PACE_S)
        except OSError as exc:
            self.broken = repr(exc)

    def once(self) -> float:
        """Return the milliseconds from the request to the whole response. Raises OSError."""
        start = time.perf_counter_ns()
        self.sock.sendall(self.frame)
        buf = b""
        while len(buf) < 4 or len(buf) < 4 + SIZE.unpack_from(buf)[0]:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionResetError("the bystander was closed")
            buf += data
        return (time.perf_counter_ns() - start) / 1e6

    def end(self) -> float:
        """Return the p99 in milliseconds; infinity if it was not served any more."""
        self.over = True
        self.join(25)
        self.sock.close()
        return inf if self.broken else percentile(self.times_ms, 0.99)


@dataclass
class Side:
    name: str
    port: int
    process: Process
    heartbeat: bytes

    def rss_mib(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss / MIB)

    def bystanders(self) -> list[Bystander]:
        body = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)]).encode(9)
        frames = (self.heartbeat, request_frame(3, 9, 1, "bystander", True, body))
        found = [Bystander(self.port, frame) for frame in frames]
        for b in found:
            b.start()
        return found

    def attack(self, name: str, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.hostile.attacks", name, "--port", str(self.port)]
        command += ["--seconds", str(seconds), "--frame", self.heartbeat.hex()]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def p99s(bystanders: list[Bystander]) -> tuple[float, float]:
    beat, passed = (b.end() for b in bystanders)
    return round(beat, 2), round(passed, 2)


def calm(side: Side, seconds: float) -> tuple[float, float]:
    found = side.bystanders()
    time.sleep(seconds)
    return p99s(found)


def under(side: Side, name: str, seconds: float) -> dict[str, Any]:
    before, most = side.rss_mib(), 0.0
    found = side.bystanders()
    attacker = side.attack(name, seconds)
    while attacker.poll() is None:
        most = max(most, side.rss_mib())
        time.sleep(0.05)
    out = attacker.communicate()[0]
    beat, passed = p99s(found)
    if attacker.returncode != 0:
        raise RuntimeError(f"the attack {name} broke")
    time.sleep(1)
    used, since = cpu_s(side.process), time.monotonic()
    time.sleep(1)
    found_cpu = {"cpu_after": round((cpu_s(side.process) - used) / (time.monotonic() - since), 3)}
    memory = {"rss_before_mib": round(before), "rss_most_mib": round(most), "rss_after_mib": round(side.rss_mib())}
    return {"beat_p99_ms": beat, "passed_p99_ms": passed, **memory, **found_cpu, **json.loads(out)}


def row(name: str, side: Side, quiet: tuple[float, float], seconds: float) -> dict[str, Any]:
    found = under(side, name, seconds)
    found |= {"attack": name, "at": side.name, "calm_beat_p99_ms": quiet[0], "calm_passed_p99_ms": quiet[1]}
    closed = f"{found['closed']:,}/{found['opened']:,}"
    if found["close_p50_ms"] is not None:
        closed += f" in {found['close_p50_ms']:.1f} ms"
    memory = f"{found['rss_before_mib']}, {found['rss_most_mib']}, {found['rss_after_mib']}"
    memory = f"{memory:16} {found['cpu_after']:.0%}"
    beats = f"{quiet[0]:8.1f} {found['beat_p99_ms']:8.1f}"
    passes = f"{quiet[1]:8.1f} {found['passed_p99_ms']:8.1f}"
    print(f"{name:14} {side.name:8} {beats}  {passes}  {closed:26} {memory}", flush=True)
    return found


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seconds", type=float, default=6.0)
    ap.add_argument("--only", default=",".join(ATTACKS))
    ap.add_argument("--base", default="")
    a = ap.parse_args()
    if a.base:
        os.environ["PYTHONPATH"] = a.base
    with one_broker("bench-h.*", {"PYTHONPATH": a.base} if a.base else {}) as kafka:
        os.environ["PYTHONPATH"] = os.getcwd()
        create_topic(kafka, TOPIC, PARTITIONS)
        fill(kafka)
        node = kafka.nodes[0]
        assert node.sidecar is not None and node.process is not None
        time.sleep(3)
        sides = []
        for name, port, process in (
            ("sidecar", node.sidecar_port, node.sidecar),
            ("broker", node.internal_port, node.process),
        ):
            sides.append(Side(name, port, process, asyncio.run(join(HOST, port, f"bench-h-{name}", 1))[0]))
        for side in sides:
            calm(side, 6)  # the JVM compiles
        print(f"{'':24}heartbeat p99 ms   passed p99 ms     closed by it               resident MiB")
        head = f"{'attack':14} {'at':8} {'calm':>8} {'under':>8}  {'calm':>8} {'under':>8}"
        print(f"{head}  {'':26} before, most, after, then CPU")
        rows = [row(n, side, calm(side, 3), a.seconds) for n in a.only.split(",") for side in sides]
    print(json.dumps({"hostile": rows}))
    if any(isinf(r["beat_p99_ms"]) or isinf(r["passed_p99_ms"]) for r in rows if r["at"] == "sidecar"):
        sys.exit("a well-behaved client of the sidecar was not served")


if __name__ == "__main__":
    main()
