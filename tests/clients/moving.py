"""A group of live consumers under a steady load, which is moved between broker and sidecars, and the judge of what it
consumed. tests/clients/test_moves.py and the rounds of tests/clients/moving_rounds.py use it.

The consumers commit each batch before they take the next one. So a record is consumed twice only if its batch was under
way when its partition was taken away, and the bound is one batch of each member for each rebalance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sidecar.drill.clients import (
    Client,
    Journal,
    ProducerProcess,
    double_owned,
    java_consumer,
    missing,
    python_consumer,
)
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from tests.clients.ground import make_topic
from tests.clients.test_placeholders import at_broker

RATE, PARTITIONS, MEMBERS = 200, 6, 3
PROTOCOLS = {"eager": "range", "cooperative": "cooperative-sticky", "consumer": "consumer"}
CLIENTS = ("librdkafka", "java")
BATCH = 500
"""Records that a consumer takes at once: the number in tests/drill's worker, and Java's default of max.poll.records."""


def groups(kafka: LocalKafka, *args: str, skip: int = -1) -> tuple[int, str]:
    """The command `sidecar groups`; its exit code and what it printed, but for the lines that tell of its waiting."""
    n = next(n for n in kafka.nodes if n.node_id != skip)
    command = [sys.executable, "-m", "sidecar.cli.main", "groups", *args]
    if "describe" not in args:
        command += ["--bootstrap", f"127.0.0.1:{n.sidecar_port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    errors = "".join(line for line in done.stderr.splitlines(keepends=True) if "not done yet" not in line)
    return done.returncode, done.stdout + errors


def picture(kafka: LocalKafka, n: Broker, group: str) -> dict[str, Any]:
    """Returns the description of the group by this broker's sidecar."""
    return kafka.get(n, f"/group?id={group}") or {}


def where(kafka: LocalKafka, n: Broker, group: str) -> str:
    return str(picture(kafka, n, group).get("where", ""))


def at_the_broker(kafka: LocalKafka, group: str) -> native.Native:
    return at_broker(kafka, lambda conn: native.describe(conn, group, 10), group)


@dataclass
class Load:
    kafka: LocalKafka
    group: str
    topic: str
    producer: ProducerProcess
    protocol: str
    kind: str = CLIENTS[0]
    clients: list[Client] = field(default_factory=list)
    gone: list[Client] = field(default_factory=list)

    def add(self, name: str, instance: str = "") -> Client:
        protocol = PROTOCOLS[self.protocol]
        if self.kind == "java":
            extra = ("--group-instance-id", instance) if instance else ()
            made = java_consumer(self.kafka, name, self.topic, self.group, *extra, protocol=protocol)
        else:
            extra = ("--instance", instance) if instance else ()
            made = python_consumer(self.kafka, name, self.topic, self.group, *extra, protocol=protocol)
        self.clients.append(made.start())
        return made

    def remove(self, client: Client) -> None:
        """Takes out a client that has ended; what it consumed still counts."""
        self.clients.remove(client)
        self.gone.append(client)

    @property
    def journals(self) -> list[Journal]:
        return [c.journal for c in (*self.clients, *self.gone)]

    def everybody_owns(self) -> bool:
        return all(c.journal.current() for c in self.clients) and self.owned() == PARTITIONS

    def owned(self) -> int:
        return sum(len(c.journal.current()) for c in self.clients)

    def count(self) -> int:
        return sum(j.count for j in self.journals)

    def goes_on(self, what: str) -> None:
        """Everybody owns something, and all partitions are consumed to a point after now."""
        wait_until(f"everybody to own something after {what}", self.everybody_owns, 120)
        seen = dict(self.producer.ends)

        def caught_up() -> bool:
            done = {p: max((r[1] for j in self.journals for r in j.consumed.get(p, [])), default=-1) for p in seen}
            return all(done[p] >= end - 1 for p, end in seen.items())

        wait_until(f"consumption to go on after {what}", caught_up, 120)

    def twice(self) -> int:
        """Records that were consumed more than once."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for j in self.journals:
            for p, ranges in list(j.consumed.items()):
                spans.setdefault(p, []).extend(ranges)
        again = 0
        for ranges in spans.values():
            at = -1
            for low, high in sorted(ranges):
                again += max(0, min(high, at) - low + 1)
                at = max(at, high)
        return again


def below_commits(journals: Sequence[Client]) -> int:
    """Records that somebody read again though a commit behind them had been acknowledged: offsets that were lost. The
    clients' own clocks are those of one machine."""
    events = []
    for c in journals:
        lines = c.raw.read_text().splitlines() if c.raw.exists() else []
        events += [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    committed: dict[int, int] = {}
    lost = 0
    for e in sorted(events, key=lambda e: int(e.get("timestamp", 0))):
        if e["name"] == "offsets_committed" and e["success"]:
            for o in e["offsets"]:
                committed[o["partition"]] = max(o["offset"], committed.get(o["partition"], 0))
        elif e["name"] == "records_consumed":
            for p in e["partitions"]:
                end = min(p["maxOffset"] + 1, committed.get(p["partition"], 0))
                lost += max(0, end - p["minOffset"])
    return lost


@contextmanager
def load(
    kafka: LocalKafka,
    name: str,
    protocol: str,
    kind: str = CLIENTS[0],
    instances: Sequence[str] = (),
    rate: float = RATE,
) -> Iterator[Load]:
    """`instances`: of the first members, which are static ones."""
    topic, group = make_topic(kafka, f"t-{name}", PARTITIONS), f"moved-{name}"
    producer = ProducerProcess(kafka, topic, rate, kafka.internal).start()
    made = Load(kafka, group, topic, producer, protocol, kind)
    try:
        for i in range(MEMBERS):
            made.add(f"{name}-{i}", instances[i] if i < len(instances) else "")
        made.goes_on("the start")
        yield made
        producer.stop()
        wait_until("everything to be consumed", lambda: not missing(producer.ends, made.journals), 120)
    finally:
        producer.stop()
        for c in made.clients:
            c.stop()


def judge(done: Load, rebalances: int) -> None:
    twice = done.twice()
    errors = Counter(e for j in done.journals for e in j.errors)
    print(f"{done.group}: {done.count()} consumed, {twice} twice, errors {dict(errors)}")
    assert missing(done.producer.ends, done.journals) == 0
    assert double_owned(done.journals) == []
    assert below_commits([*done.clients, *done.gone]) == 0
    assert twice <= rebalances * MEMBERS * BATCH
