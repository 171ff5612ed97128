"""Measures how soon members get topics that were just made, grown or deleted: here and at Kafka's own coordinator.

    python -m benchmarks.fresh [--rounds 3] [--brokers 3] [--client java]

Members of both protocols, heartbeats every 0.3 s, because an assignment comes with one. Seconds from the subscription,
or from the change where that comes later, until the member is assigned all partitions; the median of the rounds. The
last line has the row in which the sidecar is latest behind Kafka.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from sidecar.drill.artifacts import java
from sidecar.drill.local import LocalKafka

LIMIT_S = 25.0
HEARTBEAT_MS = 300
ENV = {"SIDECAR_GROUPS__INCLUDE": '["managed.*"]', "SIDECAR_LOG__LEVEL": "warning"}
PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.initial.rebalance.delay.ms": "0",
}
SOURCE = Path(__file__).parent / "java" / "FreshMembers.java"


@dataclass(frozen=True)
class Case:
    """`before_s`: from the topic to the join; negative: the topic comes so long after it. `how`: what is done then."""

    called: str
    before_s: float
    how: str = "made"


CASES = [
    *(Case(f"made {s:g} s before the join", s) for s in (0.0, 0.1, 0.5, 1.0, 4.0)),
    Case("made anew 0 s before the join", 0.0, "made anew"),
    Case("made 3 s after the join", -3.0),
    Case("partitions added 3 s after the join", -3.0, "grown"),
    Case("made anew 3 s after the join", -3.0, "made anew"),
]


class Change:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        self.topic = topic

    def __call__(self, how: str) -> None:
        if how == "grown":
            self.admin.create_partitions([NewPartitions(self.topic, 4)])[self.topic].result(30)
            return
        if how == "made anew":
            self.admin.delete_topics([self.topic])[self.topic].result(30)
        self.admin.create_topics([NewTopic(self.topic, 4 if how == "made anew" else 2, 1)])[self.topic].result(30)


@dataclass(frozen=True)
class Wish:
    bootstrap: str
    group: str
    protocol: str
    pattern: bool
    case: Case

    @property
    def topic(self) -> str:
        return f"{self.group}-t"

    @property
    def subject(self) -> str:
        return f"^{self.group}-.*" if self.pattern else self.topic

    @property
    def partitions(self) -> int:
        return 2 if self.case.how == "made" else 4


Assigned = Callable[[Wish], float]
"""Starts a member, and returns when it had its partitions; infinity: not within the limit."""


def librdkafka(wish: Wish) -> float:
    conf = {
        "bootstrap.servers": wish.bootstrap,
        "group.id": wish.group,
        "group.protocol": wish.protocol,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 2,
    }
    consumer = Consumer(conf | ({"heartbeat.interval.ms": HEARTBEAT_MS} if wish.protocol == "classic" else {}))
    consumer.subscribe([wish.subject])
    end_s = time.monotonic() + LIMIT_S
    while (missing := len(consumer.assignment()) != wish.partitions) and time.monotonic() < end_s:
        consumer.poll(0.02)
    done_s = float("inf") if missing else time.monotonic()
    consumer.close()
    return done_s


@dataclass
class JavaMembers:
    """All in one JVM, because a new one for each member would take longer than what is measured."""

    process: subprocess.Popen[str]
    done_s: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.split():  # the client's log goes there, too
                case ["member", group, assigned]:
                    with self.changed:
                        self.done_s[group] = time.monotonic() if assigned == "true" else float("inf")
                        self.changed.notify_all()

    def __call__(self, wish: Wish) -> float:
        by = "pattern" if wish.pattern else "name"
        words = (wish.bootstrap, wish.group, wish.protocol, by, wish.subject, str(wish.partitions))
        assert self.process.stdin is not None
        with self.changed:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
            if not self.changed.wait_for(lambda: wish.group in self.done_s, 2 * LIMIT_S):
                raise TimeoutError(f"the JVM says nothing of {wish.group}")
            return self.done_s[wish.group]


@contextmanager
def java_members(libs: Path) -> Iterator[Assigned]:
    command = [java(), "-Xmx512m", "-cp", f"{libs}/*", str(SOURCE), str(LIMIT_S), str(HEARTBEAT_MS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        members = JavaMembers(process)
        threading.Thread(target=members.read, daemon=True).start()
        try:
            yield members
        finally:
            process.kill()


def seconds(wish: Wish, assigned: Assigned) -> float:
    change, case = Change(wish.bootstrap, wish.topic), wish.case
    if case.how != "made":
        change("made")
        time.sleep(3.0)
    if case.before_s >= 0:
        change(case.how)
        time.sleep(case.before_s)
    began = [time.monotonic()]
    if case.before_s < 0:

        def later() -> None:
            change(case.how)
            began[0] = time.monotonic()

        timer = threading.Timer(-case.before_s, later)
        timer.start()
    return assigned(wish) - began[0]


def play(kafka: LocalKafka, assigned: Assigned, rounds: int, only: str, tell: Callable[[str], None]) -> None:
    def medians(protocol: str, pattern: bool, case: Case, name: str, rounds: int = rounds) -> tuple[float, float]:
        """Kafka's and the sidecar's. Both sides play at the same time, under the same load."""

        def play_round(r: int) -> list[float]:
            sides = ((kafka.internal, "plain"), (kafka.bootstrap, "managed"))
            wishes = [Wish(at, f"{prefix}-{protocol}-{name}-{r}", protocol, pattern, case) for at, prefix in sides]
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(lambda wish: seconds(wish, assigned), wishes))

        kafka_s, here_s = map(statistics.median, zip(*map(play_round, range(rounds)), strict=True))
        return kafka_s, here_s

    ways = [(protocol, pattern) for protocol in ("consumer", "classic") for pattern in (False, True)]
    for protocol, pattern in ways:
        medians(protocol, pattern, CASES[0], f"{pattern:d}-warm", rounds=1)
    tell("| protocol | subscribes | topic | Kafka s | here s |\n|---|---|---|---|---|")
    latest = (-float("inf"), "")
    for protocol, pattern in ways:
        for n, case in enumerate(CASES):
            row = f"{protocol} | {'pattern' if pattern else 'name'} | {case.called}"
            if only in row:
                kafka_s, here_s = medians(protocol, pattern, case, f"{pattern:d}-{n}")
                tell(f"| {row} | {kafka_s:.2f} | {here_s:.2f} |")
                latest = max(latest, (here_s - kafka_s, row))
    tell(f"latest behind Kafka: {latest[0]:.2f} s, {latest[1]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--client", choices=("librdkafka", "java"), default="librdkafka")
    parser.add_argument("--only", default="", help="part of a row's name")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalKafka(Path(folder), brokers=args.brokers, sidecar_env=ENV, properties=PROPERTIES) as kafka,
    ):
        kafka.wait_ready()

        def tell(line: str) -> None:
            print(line, flush=True)

        if args.client == "librdkafka":
            play(kafka, librdkafka, rounds=args.rounds, only=args.only, tell=tell)
            return
        with java_members(kafka.libs) as assigned:
            play(kafka, assigned, rounds=args.rounds, only=args.only, tell=tell)


if __name__ == "__main__":
    main()
