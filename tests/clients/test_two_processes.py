"""Front and coordinator share nothing: the tests of unmodified clients run once more, with each sidecar split into two
processes that speak over a Unix socket."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from sidecar.drill.local import LocalKafka
from tests.clients import test_one_listener as one
from tests.clients.ground import ENV, make_topic

pytestmark = pytest.mark.tier("all")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker whose only listener stands behind a sidecar of two processes."""
    cluster = LocalKafka(tmp_path_factory.mktemp("split"), brokers=1, front="one", sidecar_env=ENV, split=True)
    with cluster:
        cluster.wait_ready()
        yield cluster


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> str:
    return make_topic(kafka, "orders", 6)


def test_there_are_two_processes(kafka: LocalKafka) -> None:
    n = kafka.nodes[0]
    assert n.sidecar is not None and n.coordinator is not None and n.sidecar.pid != n.coordinator.pid


ONE_PROCESS = {"test_metrics_and_health", "test_a_restarted_sidecar_knows_its_groups"}
"""The first compares figures of connections with those of the state, which are at two addresses here. The second kills
the one process; below each half is killed by itself."""


def _again() -> None:
    """Every other test of that module is a test of this one, with this one's fixtures."""
    for name, value in vars(one).items():
        if name.startswith("test_") and name not in ONE_PROCESS:
            globals()[name] = value


_again()


@pytest.mark.parametrize("half", ["coordinator", "front"])
def test_a_killed_half_is_replaced_beside_the_other(kafka: LocalKafka, topic: str, half: str) -> None:
    """Without a coordinator the front goes on holding the clients' connections, and serves groups as soon as one is
    back; without a front the coordinator goes on owning its partitions, and no group is rebuilt."""
    n = kafka.nodes[0]
    consumer = one.consume(kafka, f"managed-killed-{half}", topic, 5, **{"group.protocol": "consumer"})
    kept, killed = (n.sidecar, n.coordinator) if half == "coordinator" else (n.coordinator, n.sidecar)
    assert kept is not None and killed is not None
    try:
        os.kill(killed.pid, signal.SIGKILL)
        if half == "coordinator":
            kafka.start_coordinator(n)
        else:
            kafka.start_front(n)
        kafka.wait_ready()
        one.until(lambda: one._commits(consumer), 60, "the same consumer goes on by itself")
        assert kept.alive
    finally:
        consumer.close()
