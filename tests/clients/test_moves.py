"""Groups move between brokers and sidecars under live consumers: nothing is lost, offsets stay, and nothing is consumed
twice but what was not committed when a rebalance came.

The consumers commit each batch before they take the next one. So a record is consumed twice only if its batch was under
way when its partition was taken away, and the bound is one batch of each member for each rebalance.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.drill.clients import Client, ProducerProcess, double_owned, missing, python_consumer
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from tests.clients.conftest import ENV, make_topic
from tests.clients.test_placeholders import at_broker

pytestmark = pytest.mark.kafka
RATE, PARTITIONS, MEMBERS = 200, 6, 3
PROTOCOLS = {"eager": "range", "cooperative": "cooperative-sticky", "consumer": "consumer"}
BATCH = 500
"""What a consumer takes at once."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    cluster = LocalKafka(tmp_path_factory.mktemp("moves"), brokers=2, sidecar_env=ENV)
    with cluster:
        cluster.wait_ready()
        yield cluster


def groups(kafka: LocalKafka, *args: str, skip: int = -1) -> tuple[int, str]:
    """The command; its exit code and what it printed."""
    n = next(n for n in kafka.nodes if n.node_id != skip)
    command = [sys.executable, "-m", "sidecar.cli.main", "groups", *args]
    if "describe" not in args:
        command += ["--bootstrap", f"127.0.0.1:{n.sidecar_port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    return done.returncode, done.stdout + done.stderr


def whereabouts(kafka: LocalKafka, group: str) -> dict[str, Any]:
    for n in kafka.nodes:
        if n.sidecar is not None and n.sidecar.alive:
            found: dict[str, Any] = kafka.get(n, f"/group?id={group}") or {}
            if found:
                return found
    return {}


def at_the_broker(kafka: LocalKafka, group: str) -> native.Native:
    return at_broker(kafka, lambda conn: native.describe(conn, group, 10), group)


@dataclass
class Load:
    kafka: LocalKafka
    group: str
    topic: str
    producer: ProducerProcess
    clients: list[Client] = field(default_factory=list)

    def everybody_owns(self) -> bool:
        return all(c.journal.current() for c in self.clients) and self.owned() == PARTITIONS

    def owned(self) -> int:
        return sum(len(c.journal.current()) for c in self.clients)

    def count(self) -> int:
        return sum(c.journal.count for c in self.clients)

    def goes_on(self, what: str) -> None:
        """Everybody owns something, and all partitions are consumed to a point after now."""
        wait_until(f"everybody to own something after {what}", self.everybody_owns, 90)
        seen = dict(self.producer.ends)

        def caught_up() -> bool:
            done = {
                p: max((r[1] for c in self.clients for r in c.journal.consumed.get(p, [])), default=-1) for p in seen
            }
            return all(done[p] >= end - 1 for p, end in seen.items())

        wait_until(f"consumption to go on after {what}", caught_up, 60)

    def twice(self) -> int:
        """Records that were consumed more than once."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for c in self.clients:
            for p, ranges in c.journal.consumed.items():
                spans.setdefault(p, []).extend(ranges)
        again = 0
        for ranges in spans.values():
            at = -1
            for low, high in sorted(ranges):
                again += max(0, min(high, at) - low + 1)
                at = max(at, high)
        return again


@contextmanager
def load(kafka: LocalKafka, name: str, protocol: str) -> Iterator[Load]:
    topic, group = make_topic(kafka, f"t-{name}", PARTITIONS), f"moved-{name}"
    producer = ProducerProcess(kafka, topic, RATE, kafka.internal).start()
    made = Load(kafka, group, topic, producer)
    try:
        for i in range(MEMBERS):
            made.clients.append(
                python_consumer(kafka, f"{name}-{i}", topic, group, "--protocol", PROTOCOLS[protocol]).start()
            )
        made.goes_on("the start")
        yield made
        producer.stop()
        wait_until(
            "everything to be consumed", lambda: not missing(producer.ends, [c.journal for c in made.clients]), 60
        )
    finally:
        producer.stop()
        for c in made.clients:
            c.stop()


def judge(done: Load, rebalances: int) -> None:
    journals = [c.journal for c in done.clients]
    twice = done.twice()
    print(f"{done.group}: {done.count()} consumed, {twice} twice, errors {[j.errors for j in journals]}")
    assert missing(done.producer.ends, journals) == 0
    assert double_owned(journals) == []
    assert twice <= rebalances * MEMBERS * BATCH


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_there_and_back_under_live_members(kafka: LocalKafka, protocol: str) -> None:
    with load(kafka, protocol, protocol) as live:
        assert at_the_broker(kafka, live.group).kind == ("consumer" if protocol == "consumer" else "classic")
        begun = time.monotonic()
        assert groups(kafka, "adopt", live.group) == (0, f"{live.group} is with the sidecars now.\n")
        print("adopted after", round(time.monotonic() - begun, 2))
        live.goes_on("the adoption")
        assert whereabouts(kafka, live.group)["where"] == "sidecar"
        assert at_the_broker(kafka, live.group).kind == native.NOBODY
        begun = time.monotonic()
        assert groups(kafka, "release", live.group) == (0, f"{live.group} is with the broker now.\n")
        print("released after", round(time.monotonic() - begun, 2))
        live.goes_on("the release")
        assert whereabouts(kafka, live.group)["where"] == "broker"
        assert len(at_the_broker(kafka, live.group).members) == MEMBERS
    judge(live, 2)
