"""Kafka's own tools, regular expressions, static members and a rack-aware plug-in: three brokers in three racks."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.artifacts import java, kafka_libs
from sidecar.drill.local import LocalKafka

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LIST_GROUPS = "org.apache.kafka.tools.GroupsCommand"
JAVA = Path(__file__).resolve().parent.parent / "java"


@pytest.fixture(scope="module")
def racks(trio_world: LocalKafka) -> LocalKafka:
    admin = AdminClient({"bootstrap.servers": trio_world.internal, "log_level": 3})
    spread = [[1], [2], [3], [1], [2], [3]]
    topics = [NewTopic("stock-eu", 6, replica_assignment=spread), NewTopic("stock-us", 3, 1)]
    for future in admin.create_topics(topics).values():
        future.result(timeout=30)
    return trio_world


def tool(kafka: LocalKafka, main: str, *args: str, fails: bool = False) -> str:
    code, out = kafka.run_tool(main, "--bootstrap-server", kafka.bootstrap, *args)
    assert fails or code == 0, out
    return out


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.split()}


def until(check: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Polling:
    """A librdkafka consumer that is polled until it is closed."""

    def __init__(self, kafka: LocalKafka, group: str, topics: list[str], **config: object) -> None:
        base: dict[str, object] = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 3}
        names = {k.replace("_", "."): v for k, v in config.items()}
        self.consumer = Consumer({**base, "group.protocol": "consumer", "auto.offset.reset": "earliest", **names})
        self.consumer.subscribe(topics)
        self._stop = threading.Event()
        self._has: set[str] = set()
        self._wishes: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.consumer.poll(0.1)
            self._has = {f"{p.topic}-{p.partition}" for p in self.consumer.assignment()}
            while self._wishes:
                self._wishes.pop()()
        self.consumer.close()

    def has(self) -> set[str]:
        return self._has

    def commit(self, offsets: list[TopicPartition]) -> None:
        """In the thread that polls: librdkafka's consumer is one thread's."""
        done = threading.Event()

        def work() -> None:
            self.consumer.commit(offsets=offsets, asynchronous=False)
            done.set()

        self._wishes.append(work)
        assert done.wait(20)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_java_and_librdkafka_with_regular_expressions_and_static_members(racks: LocalKafka) -> None:
    group = "managed-pattern"
    command = [
        java(),
        "-cp",
        f"{kafka_libs()}/*",
        str(JAVA / "PatternConsumer.java"),
        racks.bootstrap,
        group,
        "stock-.*",
    ]
    process = subprocess.Popen(
        [*command, "group.instance.id=java-1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    said: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda out: said.extend(out), args=(process.stdout,), daemon=True)
    reader.start()
    mine = Polling(racks, group, ["^stock-.*"], group_instance_id="rdkafka-1")

    def java_has() -> set[str]:
        return set(said[-1].split()[1:]) if said else set()

    everything = {*(f"stock-eu-{i}" for i in range(6)), *(f"stock-us-{i}" for i in range(3))}
    try:
        until(lambda: len(mine.has()) in (4, 5) and mine.has() | java_has() == everything, f"{mine.has()} {java_has()}")
        until(lambda: not mine.has() & java_has(), "each has its own")
        told = tool(racks, GROUPS, "--describe", "--group", group, "--members", "--verbose")
        assert "java-1" in told and "rdkafka-1" in told and "stock-us" in told
        # A static member that restarts takes its partitions back; nobody else notices.
        before = mine.has()
        mine.close()
        mine = Polling(racks, group, ["^stock-.*"], group_instance_id="rdkafka-1")
        until(lambda: mine.has() == before, f"{mine.has()} is not {before}")
    finally:
        mine.close()
        process.terminate()
        process.wait(15)


def test_a_rack_aware_plug_in_gives_each_member_the_partitions_of_its_rack(racks: LocalKafka) -> None:
    near = {f"rack-{i}": {f"stock-eu-{i - 1}", f"stock-eu-{i + 2}"} for i in (1, 2, 3)}
    members = {
        f"rack-{i}": Polling(
            racks, "managed-racks", ["stock-eu"], client_rack=f"rack-{i}", group_remote_assignor="rack-aware"
        )
        for i in (1, 2, 3)
    }
    try:
        until(lambda: {r: m.has() for r, m in members.items()} == near, "each has the partitions of its rack")
        assert "rack-aware" in tool(racks, GROUPS, "--describe", "--group", "managed-racks", "--state")
    finally:
        for m in members.values():
            m.close()
