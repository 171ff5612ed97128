"""A server under attack, and well-behaved clients beside the attack."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import psutil

from benchmarks.common import percentile
from benchmarks.heartbeat import TOPIC
from sidecar.drill.processes import Process
from sidecar.wire.frames import SIZE, request_frame
from sidecar.wire.generated import metadata as md
from tests.security.raw import RawClient, plain

PACE_S = 0.002
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


def felt(times_ms: Sequence[float]) -> list[float]:
    """The waits of a client that does not wait for its last answer before it asks again: while one request takes long,
    those that were due each `PACE_S` wait for the rest of that time."""
    step = PACE_S * 1000
    return [t - i * step for t in times_ms for i in range(1 + int(t / step))]


class Bystander(threading.Thread):
    """One request at a time, every 2 ms, on one connection; a reply that does not come in 20 s ends it. `other`: how
    many responses were not the same as the first one: a steady member's are, byte by byte."""

    def __init__(self, sock: socket.socket, frame: bytes) -> None:
        super().__init__(daemon=True)
        self.sock = sock
        self.sock.settimeout(20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = frame
        self.first = b""
        self.times_ms: list[float] = []
        self.other = 0
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
        took_ms = (time.perf_counter_ns() - start) / 1e6
        self.first = self.first or buf
        self.other += buf != self.first
        return took_ms

    def end(self) -> float:
        """Return the p99 in milliseconds; infinity if it was not served any more."""
        self.over = True
        self.join(25)
        self.sock.close()
        return inf if self.broken else percentile(felt(self.times_ms), 0.99)


@dataclass
class Side:
    """`user`: who the bystanders are; `admin`, `group`: what an attack is told beside the port; `nice`: of attacks."""

    name: str
    port: int
    process: Process
    heartbeat: bytes
    user: str = ""
    admin: int = 0
    group: str = ""
    nice: int = 0

    def rss_mib(self) -> float:
        """0 when the process has ended."""
        return float(psutil.Process(self.process.worker_pid).memory_info().rss / MIB) if self.process.alive else 0.0

    def bystanders(self) -> list[Bystander]:
        """One with heartbeats and one whose requests pass to the broker."""
        body = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)]).encode(9)
        frames = (self.heartbeat, request_frame(3, 9, 1, "bystander", True, body))
        found = [Bystander(login(self.port, self.user).sock, frame) for frame in frames]
        for b in found:
            b.start()
        return found

    def attack(self, name: str, seconds: float, user: str = "") -> subprocess.Popen[str]:
        command = ["nice", "-n", str(self.nice), sys.executable, "-m", "tests.hostile.attacks", name]
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


def p99s(bystanders: list[Bystander]) -> tuple[float, float]:
    beat, passed = (b.end() for b in bystanders)
    return round(beat, 2), round(passed, 2)


def calm(side: Side, seconds: float) -> tuple[float, float]:
    found = side.bystanders()
    time.sleep(seconds)
    return p99s(found)


class Repeated(threading.Thread):
    """Does something again and again beside an attack. `took_s`: the seconds of each, infinity where it failed."""

    def __init__(self, act: Callable[[], None], pause_s: float) -> None:
        super().__init__(daemon=True)
        self.act, self.pause_s = act, pause_s
        self.took_s: list[float] = []
        self.failures: list[str] = []
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self.pause_s):
            start = time.monotonic()
            try:
                self.act()
                self.took_s.append(time.monotonic() - start)
            except (OSError, EOFError) as exc:
                self.took_s.append(inf)
                self.failures.append(f"{exc!r} after {time.monotonic() - start:.0f} s")

    def end(self) -> float:
        """Return the longest; whatever is under way comes to its end before."""
        self._over.set()
        self.join()
        return max(self.took_s, default=0.0)
