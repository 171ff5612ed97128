"""The clients of a run, and the journal of each: what it was assigned, consumed and committed."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process
from sidecar.drill.secured import private

STOPS_WITHIN_S = 15.0


@dataclass
class Owned:
    """A partition that a client says it had, from its assigned event to its revoked or lost event."""

    client: str
    partition: int
    from_ms: int
    to_ms: int | None = None
    lost: bool = False


@dataclass
class Journal:
    """The reports of one client so far. `consumed`: by partition, first and last offset of each report; `committed`: by
    partition, the last committed offset."""

    name: str
    owned: list[Owned] = field(default_factory=list)
    consumed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    commit_log: list[tuple[int, int, int]] = field(default_factory=list)
    """(time ms, partition, offset) of each acknowledged commit."""
    errors: list[str] = field(default_factory=list)
    skipped: int = 0
    """Offsets between the first and last of a report that the report did not count. Topics of drills have no gaps."""
    count: int = 0
    ended: bool = False

    def current(self) -> set[int]:
        return {o.partition for o in self.owned if o.to_ms is None}

    def add(self, e: dict[str, Any]) -> None:
        name, at = e.get("name"), int(e.get("timestamp", 0))
        if name == "partitions_assigned":
            held = self.current()
            self.owned += [Owned(self.name, p["partition"], at) for p in e["partitions"] if p["partition"] not in held]
        elif name in ("partitions_revoked", "partitions_lost"):
            revoked = {p["partition"] for p in e["partitions"]}
            for o in self.owned:
                if o.to_ms is None and o.partition in revoked:
                    o.to_ms, o.lost = at, name == "partitions_lost"
        elif name == "records_consumed":
            for p in e["partitions"]:
                self.consumed.setdefault(p["partition"], []).append((p["minOffset"], p["maxOffset"]))
                self.skipped += max(0, p["maxOffset"] - p["minOffset"] + 1 - p["count"])
                self.count += p["count"]
        elif name == "offsets_committed":
            if e["success"]:
                for p in e["offsets"]:
                    self.committed[p["partition"]] = p["offset"]
                    self.commit_log.append((at, p["partition"], p["offset"]))
            elif e.get("error"):
                self.errors.append(str(e["error"]))
        elif name == "consumer_error":
            self.errors.append(str(e.get("text")))
        elif name == "shutdown_complete":
            self.ended = True

    def end(self, at_ms: int) -> None:
        """Note that the process is gone, and so owns nothing any more."""
        for o in self.owned:
            if o.to_ms is None:
                o.to_ms = at_ms


class Client:
    """A consumer process with its journal; the raw events are kept in a file beside its log."""

    def __init__(self, name: str, process: Process, raw: Path) -> None:
        self.name = name
        self.process = process
        self.journal = Journal(name)
        self.raw = raw
        self.lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self.hung = False
        """Whether it had to be killed when it was stopped."""

    def start(self) -> Client:
        self.process.start()
        self._reader = threading.Thread(target=self._read, name=f"read-{self.name}", daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        with self.raw.open("a") as out:
            for line in self.process.stdout:
                out.write(line)
                if not line.startswith("{"):
                    continue
                try:
                    event = json.loads(line)
                except ValueError:
                    self.journal.errors.append(f"not JSON: {line.strip()[:120]}")
                    continue
                with self.lock:
                    self.journal.add(event)

    def stop(self) -> None:
        alive = self.process.alive
        code = self.process.stop(timeout_s=STOPS_WITHIN_S)
        if self._reader is not None:
            self._reader.join(timeout=5)
        self.hung |= alive and code == -signal.SIGKILL


ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
"""Assignors of the classic protocol: the name that members exchange -> Kafka's class."""


def java_consumer(
    kafka: LocalKafka, name: str, topic: str, group: str, *extra: str, protocol: str = "consumer", bootstrap: str = ""
) -> Client:
    """Make a client that is Kafka's own VerifiableConsumer. `protocol`: consumer, or an assignor of the classic one;
    `bootstrap`: its bootstrap servers, if not the sidecars."""
    config = kafka.folder / f"{name}.properties"
    settings = {"client.id": name, **kafka.client}
    spoken = ("consumer",) if protocol == "consumer" else ("classic", "--assignment-strategy", ASSIGNORS[protocol])
    if protocol != "consumer":
        settings["heartbeat.interval.ms"] = "500"
    private(config, "".join(f"{n}={value}\n" for n, value in settings.items()))
    # fmt: off
    process = kafka.tool(
        "org.apache.kafka.tools.VerifiableConsumer",
        "--bootstrap-server", bootstrap or kafka.bootstrap, "--topic", topic,
        "--group-id", group, "--group-protocol", *spoken, "--reset-policy", "earliest",
        "--command-config", str(config), *extra,
        name=name, lines=True, jvm=("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    )
    # fmt: on
    return Client(name, process, kafka.folder / f"{name}.events")


def python_consumer(
    kafka: LocalKafka, name: str, topic: str, group: str, *extra: str, protocol: str = "consumer", bootstrap: str = ""
) -> Client:
    """Make a client on librdkafka, through confluent-kafka. `protocol` and `bootstrap` as above."""
    command = [sys.executable, "-m", "sidecar.drill.worker", "consumer", "--bootstrap", bootstrap or kafka.bootstrap]
    command += [
        "--topic",
        topic,
        "--group",
        group,
        "--name",
        name,
        "--protocol",
        protocol,
        *kafka.command_config,
        *extra,
    ]
    return Client(
        name, Process(name, command, kafka.folder / f"{name}.log", lines=True), kafka.folder / f"{name}.events"
    )


class ProducerProcess:
    """A steady producer. `ends` and `counts` hold, by partition, the end offset and number of acknowledged records."""

    def __init__(
        self, kafka: LocalKafka, topic: str, rate: float, bootstrap: str | None = None, name: str = "producer"
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "sidecar.drill.worker",
            "producer",
            "--bootstrap",
            bootstrap or kafka.bootstrap,
        ]
        command += ["--topic", topic, "--rate", str(rate), *kafka.command_config]
        self.process = Process(name, command, kafka.folder / f"{name}.log", lines=True)
        self.ends: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.failed = 0
        self._reader: threading.Thread | None = None

    def start(self) -> ProducerProcess:
        self.process.start()
        self._reader = threading.Thread(target=self._read, name="read-producer", daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith("{"):
                e = json.loads(line)
                if e["name"] == "produced":
                    self.ends = {int(p): n for p, n in e["ends"].items()}
                    self.counts = {int(p): n for p, n in e["counts"].items()}
                    self.failed = e["failed"]

    def stop(self) -> None:
        self.process.stop(timeout_s=70)
        if self._reader is not None:
            self._reader.join(timeout=5)


def missing(produced: dict[int, int], journals: Iterable[Journal]) -> int:
    """Count the offsets below the produced ends that no client consumed, and those that a client skipped."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    lost = 0
    for j in journals:
        lost += j.skipped
        for p, rs in j.consumed.items():
            ranges.setdefault(p, []).extend(rs)
    for p, end in produced.items():
        at = 0
        for low, high in sorted(ranges.get(p, [])):
            if low > at:
                lost += min(low, end) - at if at < end else 0
            at = max(at, high + 1)
        lost += max(0, end - at)
    return lost


def double_owned(journals: Iterable[Journal]) -> list[str]:
    """List the partitions that two clients had at the same time, by their own account."""
    by_partition: dict[int, list[Owned]] = {}
    for j in journals:
        for o in j.owned:
            by_partition.setdefault(o.partition, []).append(o)
    overlaps = []
    for p, spans in sorted(by_partition.items()):
        spans.sort(key=lambda o: o.from_ms)
        for a, b in itertools.pairwise(spans):
            if a.client != b.client and (a.to_ms is None or a.to_ms > b.from_ms):
                overlaps.append(f"partition {p}: {a.client} until {a.to_ms}, {b.client} from {b.from_ms}")
    return overlaps


def backward_commits(journals: Iterable[Journal]) -> list[str]:
    """List the acknowledged commits that set an offset back. Those of one client in the same millisecond count in the
    order of its journal."""
    log = sorted((c for j in journals for c in j.commit_log), key=lambda c: c[0])
    last: dict[int, int] = {}
    backward = []
    for at, p, offset in log:
        if offset < last.get(p, 0):
            backward.append(f"partition {p}: {last[p]} then {offset} at {at}")
        last[p] = max(last.get(p, 0), offset)
    return backward


def not_in_audit(journals: Iterable[Journal], intervals: list[dict[str, Any]]) -> list[str]:
    """List the partitions that a client reported as owned although no interval of the audit contains that."""
    lacking = []
    for j in journals:
        mine = [i for i in intervals if i["client_id"] == j.name]
        for o in j.owned:
            inside = any(
                i["partition"] == o.partition
                and i["from_ms"] <= o.from_ms
                and (i["to_ms"] is None or (o.to_ms is not None and o.to_ms <= i["to_ms"]))
                for i in mine
            )
            if not inside:
                lacking.append(f"{j.name} had partition {o.partition} from {o.from_ms} to {o.to_ms}")
    return lacking
