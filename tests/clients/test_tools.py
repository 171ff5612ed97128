"""Kafka's own command-line tools, unchanged, of 4.4.0 and 3.9.1: what they print through the sidecar is what they print
at the broker, line by line, for the same calls on groups in the same state."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sidecar.drill.artifacts import KAFKA, java, kafka_libs
from sidecar.drill.local import JVM, LocalKafka
from sidecar.drill.processes import wait_until
from tests.clients.ground import make_topic

SOURCE = Path(__file__).parent.parent / "java" / "Tools.java"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LIST_GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
SHARE, STREAMS = (
    "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "org.apache.kafka.tools.streams.StreamsGroupCommand",
)
TOPIC, OTHER = "tools", "tools-other"
KINDS = ("live", "empty", "modern", "quiet", "none")
"""A classic group at work, an empty one with offsets, a consumer group at work, an empty one, and no group."""
END = "=== end ==="


class Tools:
    """The tools of one version of Kafka in one JVM."""

    def __init__(self, version: str) -> None:
        self.version = version
        command = [java(), *JVM, "-cp", f"{kafka_libs(version)}/*", str(SOURCE)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, main: str, *args: str) -> list[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\t".join((main, *args)) + "\n")
        self.process.stdin.flush()
        said: list[str] = []
        for line in self.process.stdout:
            if line.strip() == END:
                return said
            said.append(line.rstrip())
        raise AssertionError(f"the tools ended: {said}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Side:
    """One coordinator: the prefix of its groups and its address."""

    def __init__(self, prefix: str, bootstrap: str) -> None:
        self.prefix, self.bootstrap = prefix, bootstrap
        self.consumers: list[Consumer] = []

    def group(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def join(self, kind: str, client_id: str, protocol: str) -> Consumer:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group(kind), "client.id": client_id}
        config |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "log_level": "3"}
        config |= (
            {"group.protocol": "consumer"} if protocol == "consumer" else {"partition.assignment.strategy": protocol}
        )
        made = Consumer(config)
        made.subscribe([TOPIC])
        self.consumers.append(made)
        return made

    def plain(self, lines: list[str]) -> list[str]:
        """Without what must differ: names of groups, member ids, ports, times; and without the columns' widths."""
        out = []
        for line in lines:
            line = line.replace(self.prefix, "G")
            line = re.sub(r"\b[\w.-]*?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "MEMBER", line)
            line = re.sub(r"(?<![\w+/-])[A-Za-z0-9+/_-]{22}(?![\w+/-])", "MEMBER", line)
            line = re.sub(r"127\.0\.0\.1:\d+", "HOST", line)
            line = re.sub(r"(timestamp|at) \d{13}", r"\1 T", line)
            line = re.sub(r"^\[[-0-9:, ]+\] ", "", line)
            if not re.match(r"^\s+at [\w.$/<>]+\(", line):  # frames of a stack
                out.append(re.sub(r"\s+", " ", line).strip())
        return [line for line in out if line and not line.startswith("SLF4J:")]  # said once in a JVM


def _has_all(c: Consumer) -> Callable[[], bool]:
    def look() -> bool:
        c.poll(0.05)
        return len(c.assignment()) == 4

    return look


@pytest.fixture(scope="module")
def sides(kafka: LocalKafka) -> Iterator[tuple[Side, Side]]:
    node = kafka.nodes[0]
    make_topic(kafka, TOPIC, 4)
    make_topic(kafka, OTHER, 2)
    producer = Producer({"bootstrap.servers": kafka.internal, "log_level": 3})
    for n in range(40):
        producer.produce(TOPIC, f"{n}", partition=n % 4)
        producer.produce(OTHER, f"{n}", partition=n % 2)
    producer.flush(20)
    time.sleep(1)  # the sidecar reads the topics every 0.3 s; a later look would bump the epoch
    made = Side("managed-x", f"127.0.0.1:{node.sidecar_port}"), Side("unmanag-x", f"127.0.0.1:{node.clients_port}")
    for side in made:
        for kind, protocol in (("live", "range"), ("modern", "consumer")):
            first = side.join(kind, f"{kind}-1", protocol)
            # It keeps the first half, whatever its member id: with both at once chance decides who gets which.
            wait_until("the first member to have all", _has_all(first), 120)
            side.join(kind, f"{kind}-2", protocol)
    every = [c for side in made for c in side.consumers]

    def settled() -> bool:
        for c in every:
            c.poll(0.05)
        return all(len(c.assignment()) == 2 for c in every)

    wait_until("all members to have their partitions", settled, 120)
    for c in every:
        c.commit(
            offsets=[TopicPartition(TOPIC, p.partition, 3 + p.partition) for p in c.assignment()], asynchronous=False
        )
    for side in made:
        for kind, protocol in (("empty", "range"), ("quiet", "consumer")):
            c = side.join(kind, kind, protocol)
            wait_until("the member to have its partitions", _has_all(c), 120)
            offsets = [TopicPartition(TOPIC, p, 2 * p) for p in range(4)] + [TopicPartition(OTHER, 0, 1)]
            c.commit(offsets=offsets, asynchronous=False)
            c.close()
            side.consumers.remove(c)
    yield made
    for side in made:
        for c in side.consumers:
            c.close()


@pytest.fixture(scope="module", params=[KAFKA, pytest.param("3.9.1", marks=pytest.mark.tier("nightly"))])
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    made = Tools(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def newest() -> Iterator[Tools]:
    """For tools that older versions do not have."""
    made = Tools(KAFKA)
    yield made
    made.close()


OURS = r"\bG-"
"""In lines of the groups of these tests; others use the broker, too."""


def compare(tools: Tools, sides: tuple[Side, Side], main: str, *args: str, only: str = "") -> list[str]:
    """Run the same call on both sides; `{live}` in an argument is the group of that kind. `only`: a
    pattern of the lines that count."""
    said: list[list[str]] = []
    for side in sides:
        names = {kind: side.group(kind) for kind in KINDS}
        call = [a.format(**names) for a in args]
        lines = side.plain(tools.run(main, "--bootstrap-server", side.bootstrap, *call))
        other = sides[1] if side is sides[0] else sides[0]
        lines = [line for line in lines if other.prefix not in line and re.search(only, line)]
        said.append(sorted(lines))
    assert said[0] == said[1], (
        f"{main} {' '.join(args)}\n sidecar "
        + "\n         ".join(said[0])
        + "\n Kafka   "
        + "\n         ".join(said[1])
    )
    return said[0]


LISTS: list[tuple[str, ...]] = [
    ("--list",),
    ("--list", "--state"),
    ("--list", "--state", "Stable"),
    ("--list", "--state", "Empty,PreparingRebalance"),
    ("--list", "--type"),
    ("--list", "--type", "classic"),
    ("--list", "--type", "consumer"),
    ("--list", "--type", "--state"),
]
VIEWS: list[tuple[str, ...]] = [
    (),
    ("--offsets",),
    ("--offsets", "--verbose"),
    ("--members",),
    ("--members", "--verbose"),
    ("--state",),
    ("--state", "--verbose"),
]


@pytest.mark.parametrize("args", LISTS, ids=" ".join)
def test_list(tools: Tools, sides: tuple[Side, Side], args: tuple[str, ...]) -> None:
    compare(tools, sides, GROUPS, *args, only=OURS)


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
@pytest.mark.parametrize("kind", KINDS)
def test_describe(tools: Tools, sides: tuple[Side, Side], kind: str, view: tuple[str, ...]) -> None:
    if getattr(tools, "version", "") == "3.9.1" and view in (("--offsets", "--verbose"), ("--state", "--verbose")):
        view = tuple(v for v in view if v != "--verbose")
    said = compare(tools, sides, GROUPS, "--describe", "--group", f"{{{kind}}}", *view)
    assert said, "it prints something"


@pytest.mark.parametrize("view", VIEWS[:1] + VIEWS[3:4] + VIEWS[5:6], ids=" ".join)
def test_describe_all_groups(tools: Tools, sides: tuple[Side, Side], view: tuple[str, ...]) -> None:
    assert compare(tools, sides, GROUPS, "--describe", "--all-groups", *view, only=OURS)


RESETS: list[tuple[str, ...]] = [
    ("--to-earliest", "--dry-run"),
    ("--to-latest", "--dry-run"),
    ("--to-offset", "3", "--dry-run"),
    ("--shift-by", "1", "--dry-run"),
    ("--by-duration", "PT1H", "--dry-run"),
    ("--to-current", "--export", "--dry-run"),
    ("--to-datetime", "2020-01-01T00:00:00.000", "--dry-run"),
    ("--to-offset", "5", "--execute"),
    ("--shift-by", "-2", "--execute"),
]


@pytest.mark.parametrize("how", RESETS, ids=" ".join)
@pytest.mark.parametrize("kind", ["empty", "quiet", "live", "none"])
def test_reset_offsets(tools: Tools, sides: tuple[Side, Side], kind: str, how: tuple[str, ...]) -> None:
    if kind == "none" and "--execute" in how:
        how = ("--to-earliest", "--dry-run")  # an execution would make the group
    compare(tools, sides, GROUPS, "--reset-offsets", "--group", f"{{{kind}}}", "--topic", TOPIC, *how)


@pytest.mark.parametrize("kind", KINDS)
def test_delete_offsets(tools: Tools, sides: tuple[Side, Side], kind: str) -> None:
    compare(tools, sides, GROUPS, "--delete-offsets", "--group", f"{{{kind}}}", "--topic", OTHER)
    if kind in ("live", "modern", "none"):
        compare(tools, sides, GROUPS, "--delete-offsets", "--group", f"{{{kind}}}", "--topic", TOPIC)


@pytest.mark.parametrize("kind", ["live", "modern", "none"])
def test_delete_of_what_cannot_be_deleted(tools: Tools, sides: tuple[Side, Side], kind: str) -> None:
    compare(tools, sides, GROUPS, "--delete", "--group", f"{{{kind}}}")


def test_groups_of_every_type(newest: Tools, sides: tuple[Side, Side]) -> None:
    for args in (
        ("--list",),
        ("--list", "--group-type", "classic"),
        ("--list", "--consumer"),
        ("--list", "--protocol", "consumer"),
    ):
        compare(newest, sides, LIST_GROUPS, *args, only=OURS)


def test_settings_of_groups(newest: Tools, sides: tuple[Side, Side]) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "{modern}")
    for args in (
        ("--describe",),
        ("--alter", "--add-config", "consumer.session.timeout.ms=50000"),
        ("--describe",),
        ("--alter", "--add-config", "consumer.session.timeout.ms=1"),
        ("--alter", "--add-config", "no.such.setting=1"),
        ("--alter", "--delete-config", "consumer.session.timeout.ms"),
        ("--describe",),
    ):
        compare(newest, sides, CONFIGS, *entity, *args)
        time.sleep(0.3)


@pytest.mark.parametrize("main", [SHARE, STREAMS], ids=["share", "streams"])
def test_groups_of_other_kinds(newest: Tools, sides: tuple[Side, Side], main: str) -> None:
    compare(newest, sides, main, "--list", only=OURS)
    for kind in ("modern", "none"):
        compare(newest, sides, main, "--describe", "--group", f"{{{kind}}}")


def test_zz_delete_empty_groups(tools: Tools, sides: tuple[Side, Side]) -> None:
    """The last one: each version deletes a group of its own."""
    kind = "empty" if tools.version == KAFKA else "quiet"
    compare(tools, sides, GROUPS, "--delete", "--group", f"{{{kind}}}")
    compare(tools, sides, GROUPS, "--describe", "--group", f"{{{kind}}}")
