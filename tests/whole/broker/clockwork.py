"""A tiny world for tests of the simulated brokers: a heap of timers is all the time there is. The simulation of whole
sidecars has a world of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.wire.apis import Api
from sidecar.wire.frames import SIZE, request_frame, response_body
from tests.whole.broker.cluster import SimCluster
from tests.whole.broker.ports import NO_DELAYS, ClusterSettings, Delays
from tests.whole.broker.table import APIS

START_MS = 1_700_000_000_000


@dataclass(order=True, slots=True)
class Timer:
    at_ms: float
    number: int
    fn: Callable[[], None] = field(compare=False)
    host: Machine = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


@dataclass(eq=False, slots=True)
class Machine:
    """`paused`: what comes due waits."""

    world: Clockwork
    paused: bool = False
    late: list[Timer] = field(default_factory=list)

    def mono_ms(self) -> int:
        return int(self.world.now_ms)

    def wall_ms(self) -> int:
        return START_MS + int(self.world.now_ms)

    def later(self, ms: float, fn: Callable[[], None]) -> Timer:
        return self.world.later(ms, fn, self)


class Clockwork:
    def __init__(
        self,
        brokers: int = 1,
        seed: int = 0,
        delays: Delays = NO_DELAYS,
        authorizer: bool = False,
        broker: Mapping[str, str] | None = None,
    ) -> None:
        """`broker`: settings of all brokers."""
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self._timers: list[Timer] = []
        self._number = 0
        self.cut: set[frozenset[int]] = set()
        self.hosts = {n: Machine(self) for n in range(1, brokers + 1)}
        replicas = str(min(3, brokers))
        static = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "2" if brokers > 2 else "1",
            "transaction.state.log.num.partitions": "10",
            "group.initial.rebalance.delay.ms": "0",
            **(broker or {}),
        }
        settings = ClusterSettings(
            {n: f"rack-{n}" for n in self.hosts},
            {(n, "CLIENTS"): (f"broker-{n}", 9092) for n in self.hosts},
            broker=static,
            delays=delays,
            authorizer=authorizer,
        )
        self.cluster = SimCluster(self, self.hosts, Machine(self), settings)

    # ---- World ----------------------------------------------------------------------------------------------
    def reachable(self, a: int, b: int) -> bool:
        down = any(self.hosts[n].paused or not self.cluster.nodes[n].up for n in (a, b))
        return not down and frozenset((a, b)) not in self.cut

    def later(self, ms: float, fn: Callable[[], None], host: Machine) -> Timer:
        self._number += 1
        timer = Timer(self.now_ms + max(ms, 0), self._number, fn, host)
        heapq.heappush(self._timers, timer)
        return timer

    # ---- running --------------------------------------------------------------------------------------------
    def run(self, ms: float, until: Callable[[], bool] | None = None) -> bool:
        """Whether `until` came true."""
        end = self.now_ms + ms
        while self._timers and self._timers[0].at_ms <= end:
            timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, timer.at_ms)
            if timer.host.paused:
                timer.host.late.append(timer)
            elif not timer.cancelled:
                timer.fn()
            if until is not None and until():
                return True
        self.now_ms = end
        return until is None

    def pause(self, n: int) -> None:
        self.hosts[n].paused = True

    def resume(self, n: int) -> None:
        host = self.hosts[n]
        host.paused = False
        late, host.late = host.late, []
        for timer in late:
            if not timer.cancelled:
                self.later(0, timer.fn, host)

    def isolate(self, n: int) -> None:
        """Cut one broker off from the others; clients still reach it."""
        self.cut = {frozenset((n, m)) for m in self.hosts if m != n}


class Client:
    """A connection that speaks the wire. `ask` runs the world until the answer is there."""

    def __init__(self, world: Clockwork, node_id: int = 1, client_id: str = "test") -> None:
        self.world, self.client_id = world, client_id
        self.closed = False
        self.raw = bytearray()
        self.answers: dict[int, Any] = {}
        self._kinds: dict[int, tuple[Any, int, bool]] = {}
        self._correlation = 0
        found = world.cluster.connect(node_id, "CLIENTS", self._heard, self._closed, "127.0.0.1")
        assert found is not None, "the broker is down"
        self.connection = found

    def _closed(self) -> None:
        self.closed = True

    def _heard(self, data: bytes) -> None:
        self.raw += data
        while len(self.raw) >= 4 and len(self.raw) >= 4 + SIZE.unpack_from(self.raw)[0]:
            size = 4 + SIZE.unpack_from(self.raw)[0]
            frame = bytes(self.raw[:size])
            del self.raw[:size]
            correlation = int.from_bytes(frame[4:8], "big")
            kind, version, flexible = self._kinds.pop(correlation)
            self.answers[correlation] = kind.decode(version, frame, response_body(frame, flexible))

    def send(self, module: Any, name: str, request: Any, version: int | None = None) -> int:
        upper = "".join(f"_{c}" if c.isupper() else c for c in name).lstrip("_").upper()
        row = APIS[Api[upper]]
        v = row.high if version is None else version
        flexible = v >= row.flexible_from
        self._correlation += 1
        self._kinds[self._correlation] = getattr(module, f"{name}Response"), v, flexible and row.key != 18
        body = request.encode(v)
        self.connection.received(request_frame(row.key, v, self._correlation, self.client_id, flexible, body))
        return self._correlation

    def ask(self, module: Any, name: str, request: Any, version: int | None = None, within_ms: float = 60_000) -> Any:
        number = self.send(module, name, request, version)
        done = self.world.run(within_ms, lambda: number in self.answers or self.closed)
        assert done and not self.closed, f"no answer to {name}"
        return self.answers.pop(number)
