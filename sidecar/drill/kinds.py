"""Clients of share groups and of streams groups: Kafka's VerifiableShareConsumer, and an application on Kafka Streams.

No member owns a partition of a share group: the acknowledged records count. A streams application commits within
itself: its output counts, and is read as transactions commit it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sidecar.drill.artifacts import ArtifactError, java, streams_libs
from sidecar.drill.clients import Client, Journal
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process
from sidecar.drill.secured import private

SHARE_SINCE = (4, 2)
"""The first Kafka whose brokers have share groups by default."""
STREAMS_SINCE = (3, 9)
"""The first Kafka on which the sidecars' streams groups were tried."""
BUCKETS = 200
PROGRAM = Path(__file__).parent / "programs" / "CountOrders.java"
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


# ---- share groups -----------------------------------------------------------------------------------------------
@dataclass
class ShareJournal(Journal):
    """The journal of a share consumer, whose `consumed` has the acknowledged records."""

    in_doubt: Journal = field(default_factory=lambda: Journal(""))
    """A journal whose `consumed` has the records with an acknowledgement that may not have arrived: the connection
    broke before the answer. If it has arrived, the record does not come again."""

    def add(self, e: dict[str, Any]) -> None:
        if e.get("name") == "records_consumed":
            self.count += e["count"]
        elif e.get("name") == "offsets_acknowledged":
            self._acknowledged(e)
        else:
            super().add(e)

    def _acknowledged(self, e: dict[str, Any]) -> None:
        if not e["success"]:
            self.errors.append(str(e.get("error")))
        journal = self if e["success"] else self.in_doubt
        for p in e["partitions"]:
            if p["offsets"]:
                journal.consumed.setdefault(p["partition"], []).extend(runs(p["offsets"]))
                journal.commit_log.append((int(e["timestamp"]), p["partition"], max(p["offsets"]) + 1))


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the first and last offset of each run without a gap."""
    spans: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if spans and offset == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], offset)
        else:
            spans.append((offset, offset))
    return spans


def acknowledged_twice(journals: Iterable[Journal]) -> list[str]:
    """Lists the records whose acknowledgement was lost: they were delivered again, and acknowledged again."""
    times: dict[tuple[int, int], int] = {}
    for p, (low, high) in ((p, run) for j in journals for p, ranges in j.consumed.items() for run in ranges):
        for offset in range(low, high + 1):
            times[p, offset] = times.get((p, offset), 0) + 1
    return [f"partition {p}: {offset} was acknowledged {n} times" for (p, offset), n in times.items() if n > 1]


def share_consumer(kafka: LocalKafka, name: str, topic: str, group: str, bootstrap: str = "") -> Client:
    """Makes a member of a share group that acknowledges the records of each poll."""
    config = kafka.folder / f"{name}.properties"
    private(config, "".join(f"{n}={value}\n" for n, value in {"client.id": name, **kafka.client}.items()))
    # fmt: off
    process = kafka.tool(
        "org.apache.kafka.tools.VerifiableShareConsumer",
        "--bootstrap-server", bootstrap or kafka.bootstrap, "--topic", topic, "--group-id", group,
        "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--command-config", str(config),
        name=name, lines=True, jvm=JVM,
    )
    # fmt: on
    client = Client(name, process, kafka.folder / f"{name}.events")
    client.journal = ShareJournal(name)
    return client


# ---- streams groups ---------------------------------------------------------------------------------------------
def streams_program(folder: Path) -> Path:
    """Returns the folder with the application's classes, which are compiled if they are not there yet."""
    target = folder / "programs"
    if not target.exists():
        jars = ":".join(map(str, streams_libs().glob("*.jar")))  # only `java` itself knows what libs/* means
        where = ["-cp", jars, "-d", str(target), str(PROGRAM)]
        command = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-2000:]
            raise ArtifactError(f"{PROGRAM.name} cannot be compiled; it needs a JDK, not only a JRE: {output}")
    return target


def streams_instance(kafka: LocalKafka, name: str, source: str, sink: str, group: str, bootstrap: str = "") -> Client:
    """Makes an instance of the application. Its commits are read from its sink, by SinkReader."""
    classes = f"{streams_program(kafka.folder)}:{streams_libs()}/*"
    arguments = [bootstrap or kafka.bootstrap, group, source, sink, name, str(BUCKETS), str(kafka.folder / f"{name}.d")]
    command = [java(), *JVM, "-cp", classes, "CountOrders", *arguments]
    log = kafka.folder / f"{name}.log"
    return Client(name, Process(name, command, log, lines=True), kafka.folder / f"{name}.events")


class SinkReader:
    """A thread that reads the committed output of the application, and notes in the journal of each instance when it
    came. `counts`: the last count of each bucket; `back`: counts that did not rise by one. It also reads the source,
    which tells the count that each bucket should have."""

    def __init__(self, bootstrap: str, source: str, sink: str, partitions: int) -> None:
        self.counts: dict[str, int] = {}
        self.buckets: dict[int, list[str]] = {}
        """Partition of the source -> the bucket of each record, by its offset: the drills' producer leaves no gaps."""
        self.back: list[str] = []
        self.journals: dict[str, Journal] = {}
        """Name of an instance -> its journal."""
        self._source = source
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{sink}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in (source, sink) for p in range(partitions)])
        self._thread = threading.Thread(target=self._read, name=f"read-{sink}", daemon=True)

    def start(self) -> SinkReader:
        self._thread.start()
        return self

    def stop(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(timeout=10)
            self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    continue
                assert key is not None and value is not None
                partition = int(message.partition() or 0)
                if message.topic() == self._source:
                    self.buckets.setdefault(partition, []).append(bucket_of(value.decode()))
                else:
                    self._note(key.decode(), value.decode(), partition, int(message.offset() or 0))

    def _note(self, bucket: str, value: str, partition: int, offset: int) -> None:
        text, _, name = value.partition(" ")
        count = int(text)
        if count != self.counts.get(bucket, 0) + 1:
            self.back.append(f"{bucket}: {count} after {self.counts.get(bucket, 0)}, by {name}")
        self.counts[bucket] = count
        journal = self.journals.get(name)
        if journal is not None:
            journal.count += 1
            journal.commit_log.append((int(time.time() * 1000), partition, offset + 1))

    def lacks(self, produced: Mapping[int, int]) -> int:
        """Returns how many of the records with these ends, by partition, are not counted, or are counted too often.
        Records that were not read from the source yet count as well."""
        expected = Counter(bucket for p, end in produced.items() for bucket in self.buckets.get(p, [])[:end])
        counted = Counter(dict(self.counts))
        unread = sum(produced.values()) - expected.total()
        return unread + sum(abs(expected[b] - counted[b]) for b in expected.keys() | counted.keys())


def bucket_of(order: str) -> str:
    """Returns the bucket in which CountOrders counts this order, of ASCII characters."""
    code = 0
    for char in order:
        code = (31 * code + ord(char)) % 2**32
    signed = code - 2**32 if code >= 2**31 else code
    return f"bucket-{signed % BUCKETS}"
