"""How soon members get topics that were made, grown or deleted a moment ago: here and at Kafka's own coordinator.

    python -m benchmarks.fresh [--rounds 3]

One broker, librdkafka's members of both protocols, heartbeats every second. Seconds from the subscription, or from the
change where that comes later, until the member is assigned all partitions; the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from sidecar.drill.local import LocalKafka

LIMIT_S = 25.0
ENV = {"SIDECAR_GROUPS__INCLUDE": '["managed.*"]', "SIDECAR_LOG__LEVEL": "warning"}
PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


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


def seconds(bootstrap: str, group: str, case: Case, protocol: str, pattern: bool) -> float:
    change = Change(bootstrap, f"{group}-t")
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
    wanted = 2 if case.how == "made" else 4
    done_s = _assigned(bootstrap, group, protocol, f"^{group}-.*" if pattern else f"{group}-t", wanted)
    return done_s - began[0]


def _assigned(bootstrap: str, group: str, protocol: str, subscribes: str, wanted: int) -> float:
    conf = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 2,
    }
    consumer = Consumer(conf | ({"heartbeat.interval.ms": 1_000} if protocol == "classic" else {}))
    consumer.subscribe([subscribes])
    end_s = time.monotonic() + LIMIT_S
    while (missing := len(consumer.assignment()) != wanted) and time.monotonic() < end_s:
        consumer.poll(0.02)
    done_s = float("inf") if missing else time.monotonic()
    consumer.close()
    return done_s


def play(kafka: LocalKafka, rounds: int, tell: Callable[[str], None] = print) -> None:
    sides = {"Kafka": (kafka.internal, "plain"), "here": (kafka.bootstrap, "managed")}
    tell("| protocol | subscribes | topic | Kafka s | here s |\n|---|---|---|---|---|")
    for protocol in ("consumer", "classic"):
        for pattern in (False, True):
            for n, case in enumerate(CASES):
                found: dict[str, list[float]] = {name: [] for name in sides}
                with ThreadPoolExecutor(2 * rounds) as pool:
                    futures = {
                        (name, r): pool.submit(
                            seconds, where, f"{prefix}-{protocol}-{pattern:d}-{n}-{r}", case, protocol, pattern
                        )
                        for name, (where, prefix) in sides.items()
                        for r in range(rounds)
                    }
                for (name, _), future in futures.items():
                    found[name].append(future.result())
                kafka_s, here_s = (statistics.median(found[name]) for name in ("Kafka", "here"))
                by = "pattern" if pattern else "name"
                tell(f"| {protocol} | {by} | {case.called} | {kafka_s:.2f} | {here_s:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalKafka(Path(folder), brokers=1, sidecar_env=ENV, properties=PROPERTIES) as kafka,
    ):
        kafka.wait_ready()
        play(kafka, args.rounds, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
