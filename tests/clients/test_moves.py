"""Groups move between brokers and sidecars under live consumers: nothing is lost, offsets stay, and nothing is consumed
twice but what was not committed when a rebalance came.

The consumers commit each batch before they take the next one. So a record is consumed twice only if its batch was under
way when its partition was taken away, and the bound is one batch of each member for each rebalance.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.core.errors import Code
from sidecar.drill.clients import Client, ProducerProcess, double_owned, missing, python_consumer
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from sidecar.kafka.net import BrokerConnection
from tests.clients.conftest import ENV, make_topic
from tests.clients.test_group_configs import BROKER, DELETE, SET, alter
from tests.clients.test_placeholders import at, at_broker

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


@pytest.mark.parametrize(("verb", "protocol"), [("adopt", "eager"), ("adopt", "consumer"), ("release", "consumer")])
def test_the_owner_dies_in_the_middle(kafka: LocalKafka, verb: str, protocol: str) -> None:
    with load(kafka, f"dies-{verb}-{protocol}", protocol) as live:
        if verb == "release":
            assert groups(kafka, "adopt", live.group)[0] == 0
            live.goes_on("the adoption")
        owner = kafka.owner_of(live.group)
        other = next(n for n in kafka.nodes if n is not owner)
        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(groups, kafka, verb, live.group, skip=owner.node_id)
            under_way = "comes" if verb == "adopt" else "leaves"
            wait_until("the move to begin", lambda: where(kafka, other, live.group) == under_way, 30, step_s=0.005)
            time.sleep(0.55 if verb == "adopt" else 0.2)  # it has just been described, or has just begun to drain
            assert owner.sidecar is not None
            os.kill(owner.sidecar.pid, signal.SIGKILL)
            time.sleep(0.5)
            kafka.start_sidecar(owner)
            assert moved.result(200)[0] == 0
        kafka.wait_ready()
        live.goes_on("the owner's death")
        assert where(kafka, other, live.group) == ("sidecar" if verb == "adopt" else "broker")
        assert len(at_the_broker(kafka, live.group).members) == (0 if verb == "adopt" else MEMBERS)
    judge(live, 3)


def where(kafka: LocalKafka, n: Broker, group: str) -> str:
    return str((kafka.get(n, f"/group?id={group}") or {}).get("where", ""))


def test_patterns_change_while_everything_runs(kafka: LocalKafka) -> None:
    async def say(conn: BrokerConnection, value: str | None) -> None:
        op = ("sidecar.groups.include", DELETE if value is None else SET, value)
        assert await alter(conn, "", op, kind=BROKER) == (0, None)
        code, _ = await alter(conn, "1", ("sidecar.groups.include", SET, "x"), kind=BROKER)
        assert code == Code.INVALID_CONFIG, "it is the same for all brokers"

    with load(kafka, "pattern", "eager") as live:
        at(kafka.nodes[0].sidecar_port, lambda c: say(c, "managed.*,moved-pat.*"))
        wait_until("the group to come", lambda: where(kafka, kafka.nodes[1], live.group) == "sidecar", 30)
        live.goes_on("the new pattern")
        assert at_the_broker(kafka, live.group).kind == native.NOBODY
        at(kafka.nodes[1].sidecar_port, lambda c: say(c, None))
        wait_until("the group to leave", lambda: not where(kafka, kafka.nodes[1], live.group), 60)
        live.goes_on("the old pattern")
        assert len(at_the_broker(kafka, live.group).members) == MEMBERS
    judge(live, 2)


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_the_administrator_has_a_group_assigned_anew(kafka: LocalKafka, protocol: str) -> None:
    with load(kafka, f"anew-{protocol}", protocol) as live:
        code, told = groups(kafka, "rebalance", live.group)
        assert code == 1 and "is not with the sidecars" in told
        assert groups(kafka, "adopt", live.group)[0] == 0
        live.goes_on("the adoption")
        code, told = groups(kafka, "rebalance", live.group, "--reason", "lag is uneven")
        assert code == 0 and "was assigned anew" in told
        live.goes_on("the rebalance")
        code, told = groups(kafka, "describe", live.group, "--admin", f"127.0.0.1:{kafka.nodes[0].admin_port}")
        assert code == 0 and "where: sidecar" in told and f"members: {MEMBERS}" in told and "owns: {" in told
        assert groups(kafka, "rebalance", live.group, "--remove-instance", "nobody")[0] == 1
        assert groups(kafka, "release", live.group)[0] == 0
    judge(live, 3)


def test_a_broker_that_knows_no_settings_of_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    old = LocalKafka(tmp_path_factory.mktemp("moves-old"), brokers=1, version="3.9.1", sidecar_env=ENV)
    with old:
        old.wait_ready()
        test_there_and_back_under_live_members(old, "eager")


def test_sidecars_of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> None:
    split = LocalKafka(tmp_path_factory.mktemp("moves-split"), brokers=1, split=True, sidecar_env=ENV)
    with split:
        split.wait_ready()
        test_there_and_back_under_live_members(split, "consumer")
