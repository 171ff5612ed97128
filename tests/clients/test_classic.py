"""The classic protocol with Java and librdkafka: owners that die, static members, members that sleep, rolling changes
between the protocols. The clients write down what they own, consume and commit; the judge reads it afterwards.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from sidecar.core.classic.embedded import assigned_with_data
from sidecar.drill.clients import (
    Client,
    Journal,
    ProducerProcess,
    backward_commits,
    double_owned,
    java_consumer,
    missing,
    python_consumer,
)
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from tests.clients.ground import make_topic
from tests.clients.wire import describe, described, listed_type

LATER = pytest.mark.tier("all")
PARTITIONS = 6


class Run:
    """One group on a topic of its own, under a steady load."""

    def __init__(self, kafka: LocalKafka, name: str, rate: float = 200) -> None:
        self.kafka, self.topic, self.group = kafka, name, f"managed-{name}"
        make_topic(kafka, name, PARTITIONS)
        self.producer = ProducerProcess(kafka, name, rate, kafka.internal).start()
        self.clients: list[Client] = []

    def java(self, name: str, protocol: str, instance: str = "") -> Client:
        extra = ("--group-instance-id", instance) if instance else ()
        return self._add(
            java_consumer(self.kafka, f"{self.topic}-{name}", self.topic, self.group, *extra, protocol=protocol)
        )

    def python(self, name: str, protocol: str, instance: str = "") -> Client:
        extra = ("--instance", instance) if instance else ()
        return self._add(
            python_consumer(self.kafka, f"{self.topic}-{name}", self.topic, self.group, *extra, protocol=protocol)
        )

    def _add(self, client: Client) -> Client:
        self.clients.append(client.start())
        return client

    @property
    def journals(self) -> list[Journal]:
        return [c.journal for c in self.clients]

    def living(self) -> list[Client]:
        return [c for c in self.clients if c.process.alive]

    def balanced(self, members: int) -> Callable[[], bool]:
        """Returns a condition: this many members share all partitions."""

        def look() -> bool:
            held = [len(c.journal.current()) for c in self.living()]
            return sum(n > 0 for n in held) == members and sum(held) == PARTITIONS

        return look

    def settle(self, members: int, timeout_s: float = 120) -> None:
        wait_until(
            f"{members} members of {self.group} share {PARTITIONS} partitions", self.balanced(members), timeout_s
        )

    def consuming(self, timeout_s: float = 120) -> None:
        """Everybody who owns partitions gets new records of them."""
        before = {c.name: c.journal.count for c in self.living()}
        wait_until(
            "all members consume",
            lambda: all(c.journal.count > before[c.name] for c in self.living() if c.journal.current()),
            timeout_s,
        )

    def caught_up(self) -> bool:
        return missing(self.producer.ends, self.journals) == 0

    def judge(self) -> None:
        """Asserts that no record was lost, no partition had two owners, and no commit went back."""
        self.producer.stop()
        wait_until("every record to be consumed", self.caught_up, 120)
        for c in self.clients:
            c.stop()
        for j in self.journals:
            j.end(int(time.time() * 1000))
        assert self.producer.failed == 0
        assert double_owned(self.journals) == []
        assert backward_commits(self.journals) == []

    def close(self) -> None:
        for c in self.clients:
            c.process.kill()
        self.producer.process.kill()


@pytest.fixture
def run(trio: LocalKafka, request: pytest.FixtureRequest) -> Iterator[Run]:
    made = Run(
        trio, request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")[:40] + f"-{time.time_ns() % 997}"
    )
    yield made
    made.close()


def kill_owner(kafka: LocalKafka, group: str) -> None:
    owner = kafka.owner_of(group)
    assert owner.sidecar is not None
    owner.sidecar.kill()
    wait_until("another owner", lambda: kafka.owner_of(group, skip=owner.node_id).node_id != owner.node_id, 120)
    kafka.start_sidecar(owner)


@pytest.mark.parametrize("protocol", ["range", pytest.param("cooperative-sticky", marks=pytest.mark.tier("nightly"))])
def test_java_and_librdkafka_in_one_group_and_the_owner_dies(run: Run, protocol: str) -> None:
    run.java("java", protocol)
    run.settle(1)
    run.python("one", protocol)
    run.python("two", protocol)
    run.settle(3)
    # A cooperative member owns what it was given before it joins again for the rest: the group may rebalance once more.
    wait_until(
        "the classic group to be stable", lambda: listed_type(run.kafka, run.group) == ("classic", "Stable"), 120
    )
    kill_owner(run.kafka, run.group)
    run.settle(3)
    run.consuming()
    run.judge()


def test_a_static_member_restarts_without_a_rebalance_though_the_owner_dies(run: Run) -> None:
    stays = run.java("stays", "range", "i-stays")
    run.settle(1)
    first = run.python("first", "range", "i-restarts")
    run.settle(2)
    spans, held = len(stays.journal.owned), first.journal.current()
    first.process.kill()
    first.journal.end(int(time.time() * 1000))
    kill_owner(run.kafka, run.group)
    again = run.python("again", "range", "i-restarts")
    wait_until("the static member to have its partitions back", lambda: len(again.journal.current()) > 0, 120)
    run.consuming()
    assert len(stays.journal.owned) == spans, "the other member saw a rebalance"
    assert again.journal.current() == held
    run.judge()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("client", ["java", "python"])
def test_a_member_that_sleeps_through_a_rebalance(run: Run, client: str) -> None:
    """KIP-792: what it claims when it is back gives nothing to two members."""
    run.java("awake", "cooperative-sticky")
    sleeper = getattr(run, client)("sleeper", "cooperative-sticky")
    run.settle(2)
    slept_ms = int(time.time() * 1000)
    sleeper.process.signal(signal.SIGSTOP)
    run.python("new", "cooperative-sticky")
    wait_until(
        "the others to share what the sleeper had",
        lambda: sum(len(c.journal.current()) for c in run.clients if c is not sleeper) == PARTITIONS,
        90,
    )
    asleep_ms = int(time.time() * 1000)
    held = set(sleeper.journal.current())
    sleeper.process.signal(signal.SIGCONT)
    wait_until("the sleeper to find out", lambda: sleeper.journal.current() != held, 120)
    run.settle(3, 90)
    run.consuming()
    for span in sleeper.journal.owned:
        if span.from_ms < asleep_ms and (span.to_ms is None or span.to_ms >= asleep_ms):
            span.to_ms = slept_ms  # asleep it could not say that others have them since
    run.judge()


@LATER
def test_rolling_change_to_the_consumer_protocol_and_back_under_load(run: Run) -> None:
    old = [run.java(f"classic-{n}", "cooperative-sticky") for n in range(3)]
    run.settle(3)
    new = []
    for n, client in enumerate(old):
        client.stop()
        new.append(run.java(f"consumer-{n}", "consumer"))
        run.settle(3)
    assert listed_type(run.kafka, run.group)[0] == "consumer"
    for n, client in enumerate(new):
        client.stop()
        run.java(f"back-{n}", "cooperative-sticky")
        run.settle(3)
    assert listed_type(run.kafka, run.group)[0] == "classic"
    run.consuming()
    run.judge()


def test_a_stable_group_of_librdkafka_upgrades_online(run: Run) -> None:
    """Plain Kafka 4.3.1 answers GROUP_ID_NOT_FOUND: librdkafka's sticky assignor hands each member's data back."""
    run.python("one", "cooperative-sticky")
    run.settle(1)
    run.python("two", "cooperative-sticky")
    run.settle(2)
    data = [assigned_with_data(m.member_assignment) for m in described(run.kafka, run.group).members]
    assert any(found is not None and found[1] for found in data), "this is why Kafka refuses"
    run.python("three", "consumer")
    run.settle(3)
    assert listed_type(run.kafka, run.group)[0] == "consumer"
    kinds = {m.client_id: m.member_type for m in describe(run.kafka, run.group).members}
    assert sorted(kinds.values()) == [0, 0, 1]
    kill_owner(run.kafka, run.group)
    run.settle(3)
    run.consuming()
    run.judge()
