"""A sidecar whose worker dies or is replaced, on a real broker: its port is open all the time."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from tests.clients import test_one_listener as one
from tests.clients.ground import make_topic, produce

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, 1) + b"c"
ANSWERS = 20


class ShortLivedClients(threading.Thread):
    """Clients that come one after the other, ask for ApiVersions and go. `waited` counts those whose connection was
    closed without an answer: they had been accepted by the worker that died, or stood in the line of one that ends."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.answered = self.closed = 0
        self.refused: list[OSError] = []
        self._port, self._ends = port, threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            try:
                conn = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            except OSError as exc:
                self.refused.append(exc)
                return
            with closing(conn):
                try:
                    conn.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
                    answer = conn.recv(4)
                except ConnectionError:
                    answer = b""
            if answer:
                self.answered += 1
            else:
                self.closed += 1

    def end(self) -> None:
        self._ends.set()
        self.join()


@contextmanager
def short_lived_clients(node: Broker) -> Iterator[ShortLivedClients]:
    made = ShortLivedClients(node.sidecar_port)
    made.start()
    try:
        more(made)
        yield made
    finally:
        made.end()


def more(c: ShortLivedClients) -> None:
    """Wait until some more have had an answer."""
    enough = c.answered + ANSWERS
    wait_until("more answers", lambda: c.answered >= enough or bool(c.refused), 60)


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> str:
    name = make_topic(kafka, "worker-orders", 2)
    produce(kafka, name, 2)
    return name


def killed(node: Broker) -> None:
    assert node.sidecar is not None
    node.sidecar.kill_worker()


def replaced(node: Broker) -> None:
    assert node.sidecar is not None
    node.sidecar.signal(signal.SIGUSR2)


@pytest.mark.parametrize("end", [killed, replaced])
def test_nobody_is_refused_while_one_worker_takes_the_place_of_another(
    kafka: LocalKafka, topic: str, end: Callable[[Broker], None]
) -> None:
    node = kafka.nodes[0]
    assert node.sidecar is not None
    consumer = one.consume(kafka, f"managed-worker-{end.__name__}", topic, 2, **{"group.protocol": "consumer"})
    try:
        parent, old = node.sidecar.pid, node.sidecar.worker_pid
        with short_lived_clients(node) as c:
            end(node)
            wait_until("another worker", lambda: node.sidecar is not None and _workers(parent) not in ([old], []), 60)
            wait_until("it to be the only one", lambda: old not in _workers(parent), 60)
            more(c)
        assert c.refused == []
        assert c.closed <= 1  # the one that was being answered
        kafka.wait_ready()
        assert node.sidecar.alive and node.sidecar.pid == parent
        one.until(lambda: one._commits(consumer), 60, "the same consumer goes on by itself")
    finally:
        consumer.close()


def _workers(parent: int) -> list[int]:
    with open(f"/proc/{parent}/task/{parent}/children") as children:
        return [int(pid) for pid in children.read().split()]
