"""A server under attack, and well-behaved clients beside the attack."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import psutil
from confluent_kafka import Producer

from benchmarks.heartbeat import TOPIC
from sidecar.drill.local import LocalKafka
from sidecar.drill.percentiles import percentile
from sidecar.drill.processes import Process
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import metadata as md
from tests.hostile import waits
from tests.hostile.target import DATA
from tests.hostile.waits import PACE_S, Meter, Wait
from tests.security.raw import RawClient, plain

SAMPLE_S = 0.05
MIB = 1 << 20


def login(port: int, user: str) -> RawClient:
    """A connection of this user by SASL PLAIN; of nobody where `user` is empty. Raises OSError and EOFError."""
    client = RawClient(port)
    if user:
        client.handshake("PLAIN", 1)
        if error := client.authenticate(plain(user)).error_message:
            raise PermissionError(f"{user}: {error}")
    return client


def fill(kafka: LocalKafka, **how: str) -> None:
    """`DATA`, for those who fetch. `how`: what librdkafka needs to log in."""
    producer = Producer({"bootstrap.servers": kafka.internal, **how})
    for _ in range(200):
        producer.produce(DATA, b"x" * 10_000)
    if producer.flush(30):
        raise RuntimeError("the topic could not be filled")


def waits_of_client(times_ms: Iterable[float]) -> list[float]:
    """The waits of a client that does not wait for its last answer before it asks again: while one request takes long,
    those that were due each `PACE_S` wait for the rest of that time."""
    step = PACE_S * 1000
    return [t - i * step for t in times_ms for i in range(1 + int(t / step))]


def of_client(times_ms: Iterable[float], share: float = 0.99) -> float:
    """Returns what this share of the client's waits does not exceed."""
    return round(percentile(waits_of_client(times_ms) or [0.0], share), 2)


@dataclass
class Waits:
    """p99s in ms of one bystander (waits.py), infinity if it was not served any more. `work_p90_ms`: what does not
    depend on one event in the seconds that were measured. `other`: responses that were not the same as the first
    one."""

    wall_ms: float = 0.0
    work_ms: float = 0.0
    idle_ms: float = 0.0
    other: int = 0
    work_p90_ms: float = 0.0

    @classmethod
    def of(cls, waits: Iterable[Sequence[float]], other: int, broken: str) -> Waits:
        if broken:
            return cls(inf, inf, inf, other, inf)
        known = [Wait(*w) for w in waits]
        work = [w.work for w in known]
        wall_ms, idle_ms = of_client(w.wall for w in known), of_client(w.idle for w in known)
        return cls(wall_ms, of_client(work), idle_ms, other, of_client(work, 0.9))

    def __str__(self) -> str:
        return f"{self.wall_ms:.0f}/{self.work_ms:.0f}/{self.idle_ms:.0f}"


class Bystander:
    """A process with one request at a time, each 2 ms after the last answer, on this connection, to the process `pid`
    (waits.py)."""

    def __init__(self, sock: socket.socket, frame: bytes, pid: int) -> None:
        with sock:
            fd = sock.fileno()
            command = [sys.executable, "-I", "-S", waits.__file__, str(fd), str(pid), frame.hex()]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=[fd])

    def end(self) -> Waits:
        return Waits.of(**json.loads(self._process.communicate()[0]))


@dataclass
class Side:
    """`user`: who the bystanders are; `admin`, `group`: what an attack is told beside the port;
    `broker`: port of the broker itself."""

    name: str
    port: int
    process: Process
    heartbeat: bytes
    user: str = ""
    admin: int = 0
    group: str = ""
    broker: int = 0

    def rss_mib(self) -> float:
        """0 when the process has ended."""
        return float(psutil.Process(self.process.worker_pid).memory_info().rss / MIB) if self.process.alive else 0.0

    def bystanders(self) -> list[Bystander]:
        """One with heartbeats, one whose requests pass to the broker, and one that asks the same of the broker itself,
        if that is known."""
        body = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)]).encode(9)
        passing = request_frame(3, 9, 1, "bystander", True, body)
        ways = [(self.port, self.heartbeat), (self.port, passing), (self.broker, passing)]
        pid = self.process.worker_pid
        return [Bystander(login(port, self.user).sock, frame, pid) for port, frame in ways if port]

    def attack(self, name: str, seconds: float, user: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.hostile.attacks", name]
        command += ["--port", str(self.port), "--seconds", str(seconds), "--frame", self.heartbeat.hex()]
        command += ["--user", user, "--admin", str(self.admin), "--group", self.group]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def attacked(self, name: str, seconds: float, user: str = "") -> tuple[float, str]:
        """Return the most MiB that the server had meanwhile, and what the attack printed."""
        attacker, most = self.attack(name, seconds, user), 0.0
        while attacker.poll() is None:
            most = max(most, self.rss_mib())
            time.sleep(SAMPLE_S)
        out = attacker.communicate()[0]
        if attacker.returncode != 0:
            raise RuntimeError(f"the attack {name} broke")
        return most, out


def ended(bystanders: Iterable[Bystander]) -> list[Waits]:
    return [b.end() for b in bystanders]


def measure_bystanders(side: Side, seconds: float) -> list[Waits]:
    found = side.bystanders()
    time.sleep(seconds)
    return ended(found)


class Repeated(threading.Thread):
    """Does something again and again beside an attack. `took_s`: the seconds of each, less those in which the process
    `pid` or this thread had no processor; infinity where it failed."""

    def __init__(self, act: Callable[[], None], pause_s: float, pid: int) -> None:
        super().__init__(daemon=True)
        self.act, self.pause_s, self.pid = act, pause_s, pid
        self.took_s: list[float] = []
        self.failures: list[str] = []
        self._over = threading.Event()

    def run(self) -> None:
        meter = Meter(self.pid)
        while not self._over.wait(self.pause_s):
            start = time.monotonic()
            try:
                meter.begin()
                self.act()
                self.took_s.append(meter.end().less_queued / 1000)
            except (OSError, EOFError) as exc:
                self.took_s.append(inf)
                self.failures.append(f"{exc!r} after {time.monotonic() - start:.0f} s")
        meter.close()

    def end(self) -> float:
        """Return the longest; whatever is under way comes to its end before."""
        self._over.set()
        self.join()
        return max(self.took_s, default=0.0)
