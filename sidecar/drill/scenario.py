"""Common parts of demo and drills: a cluster with sidecars, a topic, a producer, clients, and waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.drill.clients import Client, Journal, ProducerProcess, java_consumer, python_consumer
from sidecar.drill.drills.group_under_test import GroupUnderTest, group_under_test, sink_of
from sidecar.drill.kinds import SHARE_SINCE, STREAMS_SINCE
from sidecar.drill.local import LocalKafka
from sidecar.drill.probe import Probe
from sidecar.drill.processes import DrillError
from sidecar.drill.zookeeper import numbers

GROUP, TOPIC, PARTITIONS = "demo", "orders", 12
SIDECAR_ENV = {
    "SIDECAR_GROUPS__INCLUDE": '["demo.*"]',
    # A newcomer should not wait for Kafka's five-second heartbeats.
    "SIDECAR_CONSUMER__MIN_HEARTBEAT_INTERVAL_MS": "500",
    "SIDECAR_CONSUMER__HEARTBEAT_INTERVAL_MS": "500",
    # So that the sidecar that was killed has its partitions back within seconds.
    "SIDECAR_OWNERSHIP__FOLLOW_LEADER_MS": "2000",
}
PLACES = {SHARE: ("1", "2"), STREAMS: ("1",)}
"""Kind -> suffixes of the names of its group's clients."""


def further_kinds(version: str) -> tuple[str, ...]:
    """Return the kinds beside classic and consumer groups that sidecars coordinate on these brokers."""
    since = {SHARE: SHARE_SINCE, STREAMS: STREAMS_SINCE}
    return tuple(kind for kind, first in since.items() if numbers(version) >= first)


def all_kinds(
    folder: Path, version: str, properties: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> LocalKafka:
    """Return a cluster whose sidecars coordinate all kinds of groups that its brokers allow, with members that send
    heartbeats twice a second."""
    kinds = further_kinds(version)
    quick = {
        f"group.{kind}.{of}heartbeat.interval.ms": "500"
        for kind in kinds
        for of in ("", "min.")
        if numbers(version) >= SHARE_SINCE
    }
    served = {"SIDECAR_GROUPS__KINDS": json.dumps(["classic", "consumer", *kinds])}
    # For brokers that do not know these settings.
    served |= {f"SIDECAR_STREAMS__{of}HEARTBEAT_INTERVAL_MS": "500" for of in ("MIN_", "") if STREAMS in kinds}
    return LocalKafka(
        folder, version=version, properties={**(properties or {}), **quick}, sidecar_env={**(env or {}), **served}
    )


class Scenario:
    """A consumer group, whose clients come and go, and one group of each further kind beside it."""

    def __init__(self, folder: Path, kafka: str, say: Callable[[str], None], topic: str = TOPIC) -> None:
        self.kafka = all_kinds(folder, kafka, env=SIDECAR_ENV)
        self.report = say
        self.topic = topic
        self.clients: list[Client] = []
        self.beside: list[GroupUnderTest] = []
        self.producer: ProducerProcess | None = None
        self.probe: Probe | None = None

    # ---- set-up -------------------------------------------------------------------------------------------
    def start(self) -> None:
        k = self.kafka
        k.start_brokers()
        self.report(f"{len(k.nodes)} brokers, Kafka {k.version}, are up")
        for n in k.nodes:
            k.start_sidecar(n)
        k.wait_ready()
        ready = [(k.get(n, "/readyz") or {}).get("start_ms") for n in k.nodes]
        self.report(f"{len(k.nodes)} sidecars are up, ready after {ready} ms, each beside its broker")
        admin = AdminClient({"bootstrap.servers": k.bootstrap, "log_level": 3})
        kinds = further_kinds(k.version)
        names = (self.topic, sink_of(self.topic)) if STREAMS in kinds else (self.topic,)
        new = [NewTopic(name, PARTITIONS, min(3, len(k.nodes))) for name in names]
        for future in admin.create_topics(new).values():
            future.result(timeout=30)
        self.producer = ProducerProcess(k, self.topic, rate=300, bootstrap=k.internal).start()
        self.probe = Probe(k.internal_sidecars(), GROUP, 50).start()
        self.report(f"topic {self.topic} ({PARTITIONS} partitions) and a steady producer")
        for kind in kinds:
            group = group_under_test("sidecar", kind, f"{GROUP}-{kind}", k.bootstrap, PLACES[kind])
            self.beside.append(group)
            group.open(k, self.topic, kind)

    def consumer(self, name: str) -> Client:
        make = java_consumer if name.startswith("java") else python_consumer
        client = make(self.kafka, name, self.topic, GROUP).start()
        self.clients.append(client)
        return client

    # ---- looking ------------------------------------------------------------------------------------------
    @property
    def journals(self) -> list[Journal]:
        return [c.journal for c in self.clients]

    def owners(self) -> dict[int, str]:
        return {p: c.name for c in self.clients if not c.journal.ended for p in c.journal.current()}

    def lag(self) -> dict[int, int]:
        """Count, by partition, the records acknowledged to the producer that no client has consumed yet."""
        ends = self.producer.ends if self.producer else {}
        done = {p: max((h for j in self.journals for _, h in j.consumed.get(p, [])), default=-1) + 1 for p in ends}
        return {p: max(0, end - done[p]) for p, end in ends.items()}

    # ---- waiting ------------------------------------------------------------------------------------------
    def wait(self, what: str, check: Callable[[], bool], timeout_s: float) -> float:
        """Wait until `check()` is true, and return the seconds it took. Raises DrillError if it takes too long, or if
        a process has ended unexpectedly, even if `check()` is true without it."""
        start = time.monotonic()
        self.require_running(what)
        while not check():
            if time.monotonic() - start > timeout_s:
                held = {c.name: sorted(c.journal.current()) for c in self.clients}
                lacks = {g.group: g.lost(self.producer.ends) for g in self.beside if self.producer is not None}
                raise DrillError(
                    f"{what}: not within {timeout_s:g} s; clients hold {held}; records that other groups lack: {lacks};"
                    f" logs: {self.kafka.folder}"
                )
            time.sleep(0.05)
            self.require_running(what)
        return time.monotonic() - start

    def require_running(self, what: str) -> None:
        """Raises DrillError if a process has ended that was not stopped. `what`: what is waited for."""
        producer = [self.producer.process] if self.producer is not None else []
        for p in (*self.kafka.processes(), *(c.process for c in self.all_clients), *producer):
            if p.died:
                p.require_running(what)

    def consumed_all(self) -> bool:
        """Return whether the groups of further kinds have processed all records."""
        return self.producer is not None and all(g.consumed_all(self.producer.ends) for g in self.beside)

    def balanced(self, members: int) -> bool:
        """Return whether `members` clients share all partitions evenly, and the group's state is Stable."""
        held = [len(c.journal.current()) for c in self.clients if not c.journal.ended]
        held = [n for n in held if n]
        view = self.probe.view if self.probe else None
        return (
            view is not None
            and view.state == "Stable"
            and len(view.members) == members == len(held)
            and sum(held) == PARTITIONS
            and max(held) - min(held) <= 1
        )

    def committed_all(self) -> bool:
        ends = self.producer.ends if self.producer else {}
        best = {p: max((o for j in self.journals for _, q, o in j.commit_log if q == p), default=0) for p in ends}
        return bool(ends) and all(best[p] >= end for p, end in ends.items())

    # ---- end ----------------------------------------------------------------------------------------------
    @property
    def all_clients(self) -> list[Client]:
        return [*self.clients, *(c for g in self.beside for c in g.clients)]

    def stop_clients(self) -> None:
        for c in self.all_clients:
            c.stop()
        now_ms = int(time.time() * 1000)
        for c in self.all_clients:
            c.journal.end(now_ms)
        for group in self.beside:
            group.close()

    def stop(self) -> None:
        if self.probe is not None:
            self.probe.stop()
        for c in self.all_clients:
            c.process.kill()
        for group in self.beside:
            group.close()
        if self.producer is not None:
            self.producer.process.kill()
        self.kafka.stop()
