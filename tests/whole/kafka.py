"""The simulated brokers (tests/whole/broker) on the simulated hosts and network."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.whole.broker.batches import Batch
from tests.whole.broker.cluster import SimCluster
from tests.whole.broker.ports import ClusterSettings
from tests.whole.net import End, Net
from tests.whole.universe import Life, Proc, Universe, Work

CLIENT, INTERNAL = "CLIENT", "INTERNAL"
PORTS = {CLIENT: 9092, INTERNAL: 9093}
SIDECAR_PORT = 19092
FETCH_WAIT_MS, FETCH_TIMEOUT_MS = 1_000.0, 1_500.0
"""Milliseconds that a fetch waits for something new, and for an answer."""


def host_of(node_id: int) -> str:
    return f"h{node_id}"


class _Door:
    """A listener of a broker."""

    def __init__(self, kafka: Kafka, node_id: int, listener: str) -> None:
        self.kafka, self.node_id, self.listener = kafka, node_id, listener
        self.proc = kafka.procs[node_id]

    def accept(self, end: End) -> None:
        queue = self.kafka.accept_queues.get(self.node_id)
        if queue is None:
            _Session(self, end)
        else:
            queue.append(partial(_Session, self, end))


class _Session:
    """One connection to a broker. Its answers wait in its kernel."""

    full = False

    def __init__(self, door: _Door, end: End) -> None:
        self.end = end
        peer = end.other.address[0]
        self.conn = door.kafka.cluster.connect(door.node_id, door.listener, end.send, self._close, peer)
        end.receiver = self
        if self.conn is None:
            end.close()
        else:
            end.pump()

    def _close(self) -> None:
        self.end.close()

    def received(self, data: bytes) -> None:
        if self.conn is not None:
            self.conn.received(data)

    def ended(self) -> None:
        self.lost(None)
        self.end.close()

    def lost(self, error: Exception | None) -> None:
        if self.conn is not None:
            self.conn.lost()
            self.conn = None

    def writable(self) -> None:
        """Does nothing: this side has not waited for that."""


class Kafka:
    """`settings`: of all brokers, by Kafka's names."""

    def __init__(
        self,
        universe: Universe,
        net: Net,
        racks: Mapping[int, str | None],
        settings: Mapping[str, str],
        authorizer: bool = False,
    ) -> None:
        self.universe, self.net = universe, net
        self.rng: random.Random = universe.rng
        self.procs = {n: Proc(universe, f"broker-{n}", host_of(n)) for n in racks}
        addresses = {(n, INTERNAL): (host_of(n), PORTS[INTERNAL]) for n in racks}
        addresses |= {(n, CLIENT): (host_of(n), SIDECAR_PORT) for n in racks}
        hosts = {n: _Machine(self, n) for n in racks}
        controller = Proc(universe, "controller", "controllers")
        chosen = ClusterSettings(racks, addresses, broker=settings, authorizer=authorizer)
        self.cluster = SimCluster(self, hosts, controller, chosen)
        self.on_commit: list[Callable[[str, int], None]] = [self._wake]
        """Called when something has been committed to a partition."""
        self.accept_queues: dict[int, list[Callable[[], object]]] = {}
        """Connections that the kernel of a broker has taken, and the broker has not."""
        self._longing: dict[tuple[str, int], list[Work]] = {}
        self.cluster.on_committed = self._committed
        for node_id in racks:
            self._open(node_id)

    def _committed(self, topic: str, partition: int) -> None:
        for told in self.on_commit:
            told(topic, partition)

    def _wake(self, topic: str, partition: int) -> None:
        """Fetches that wait for something new."""
        for serve in self._longing.pop((topic, partition), ()):
            serve()

    def _open(self, node_id: int) -> None:
        for listener, port in PORTS.items():
            self.net.open_port((host_of(node_id), port), _Door(self, node_id, listener))

    # ---- what the cluster asks of its world -----------------------------------------------------------------
    def reachable(self, a: int, b: int) -> bool:
        if a == b:
            return self.procs[a].life is Life.RUNS
        ends = (self.procs[a], self.procs[b])
        way = self.net.open_way(host_of(a), host_of(b)) and self.net.open_way(host_of(b), host_of(a))
        return way and all(p.life is Life.RUNS for p in ends)

    # ---- faults ---------------------------------------------------------------------------------------------
    def crash(self, node_id: int) -> None:
        self.procs[node_id].crash()
        self.cluster.crash(node_id)

    def accepts_none(self, node_id: int) -> None:
        self.accept_queues.setdefault(node_id, [])

    def accepts_again(self, node_id: int) -> None:
        for accept in self.accept_queues.pop(node_id, ()):
            self.procs[node_id].later(0, accept)

    def start(self, node_id: int) -> None:
        if self.procs[node_id].alive:
            return
        self.procs[node_id] = Proc(self.universe, f"broker-{node_id}", host_of(node_id))
        self.cluster.start(node_id)
        self._open(node_id)

    # ---- what a client without sockets asks -----------------------------------------------------------------
    def leader(self, topic: str, partition: int) -> int | None:
        """The leader, as the controller knows it."""
        found = self.cluster.controller.image.partition(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def furthest(self, topic: str, partition: int) -> int | None:
        """Returns the broker that leads, or believes to, and knows most to be committed: for judges, whom no way is cut
        to. A leader that has been replaced cannot commit anything without the others, so it is right, too."""
        found: int | None = None
        furthest = -1
        for node_id, node in self.cluster.nodes.items():
            replica = node.replica(topic, partition) if node.up else None
            if replica is not None and replica.high_watermark > furthest:
                found, furthest = node_id, replica.high_watermark
        return found

    def inject(self, topic: str, partition: int, batch: Batch) -> None:
        """As a producer would that knows no fences."""
        node = self.cluster.nodes[self.leader(topic, partition) or 0]
        replica = node.replica(topic, partition)
        assert replica is not None
        self.universe.enter(self.procs[node.node_id], lambda: replica.append(batch, 30_000, 1, lambda code: None))

    def fetch(
        self, proc: Proc, node_id: int, topic: str, partition: int, offset: int, done: Callable[[Any], None]
    ) -> None:
        """A fetch of a consumer in that process: the answer, or None after a while."""
        net, universe = self.net, self.universe
        broker = self.procs[node_id]
        there, back = net.delay_ms(proc.host, broker.host), net.delay_ms(broker.host, proc.host)
        answered = False

        def late() -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(None)

        def arrive(found: Any) -> None:
            nonlocal answered
            if not answered and net.open_way(broker.host, proc.host):
                answered = True
                timer.cancel()
                done(found)

        served = False

        def serve(at_last: bool) -> None:
            """A fetch that finds nothing waits for something, a while."""
            nonlocal served
            if served or not broker.alive:
                return
            found = self.cluster.read(node_id, topic, partition, offset, 200)
            if at_last or found.error or found.records:
                served = True
                universe.later(back, lambda: arrive(found), proc)

        def begin() -> None:
            serve(False)
            if not served:
                longing = self._longing.setdefault((topic, partition), [])
                longing.append(lambda: universe.later(0, lambda: serve(False), broker))
                universe.later(FETCH_WAIT_MS, lambda: serve(True), broker)

        timer = universe.later(FETCH_TIMEOUT_MS, late, proc)
        if net.open_way(proc.host, broker.host):
            universe.later(there, begin, broker)


class _Machine:
    """The host of one broker, whichever life the broker is in."""

    def __init__(self, kafka: Kafka, node_id: int) -> None:
        self._kafka, self._node_id = kafka, node_id

    @property
    def _proc(self) -> Proc:
        return self._kafka.procs[self._node_id]

    def mono_ms(self) -> int:
        return self._proc.mono_ms()

    def wall_ms(self) -> int:
        return self._proc.wall_ms()

    def later(self, ms: float, fn: Callable[[], None]) -> Any:
        return self._proc.later(ms, fn)
