"""The audit over and over: what is new, every so often, and an alert before history is lost.

A batch is the same as that of a single run, so whoever is stopped or killed goes on where the lake is. There is no
other state: a lake may be filled by runs and by this in turn, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from sidecar.audit.errors import AuditError, NoTopic, Refused, number
from sidecar.audit.ingest import last_batch, lost_so_far
from sidecar.audit.ingest_plan import Batch
from sidecar.audit.lake import Lake
from sidecar.audit.maintain import maintain
from sidecar.audit.pipeline import audit, verdict
from sidecar.audit.source_kafka import KafkaSource
from sidecar.audit.source_lag import Lag, lags
from sidecar.audit.source_uri import open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
PER_PARTITION = {
    "group_state_audit_lag_records": "Offsets that are not in the lake yet.",
    "group_state_audit_lost_records": "Offsets that were gone before they were read, since the lake began.",
    "group_state_audit_oldest_seconds": "Age of the oldest record that is not in the lake yet.",
    "group_state_audit_compaction_lag_seconds": "Age at which compaction may remove a record.",
}
TOPIC_WAIT_S = 5.0
"""Between two looks for a topic that is not there yet."""


class Metrics:
    """What Prometheus is told. Names begin with group_state_audit_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lags = {
            name: Gauge(name, doc, ["partition"], registry=self.registry) for name, doc in PER_PARTITION.items()
        }
        self.ok = self._gauge("up", "1 if the last batch succeeded.")
        self.last = self._gauge("last_success_timestamp_seconds", "When a batch last succeeded.")
        self.seconds = self._gauge("batch_seconds", "How long the last batch took.")
        self.records = self._gauge("records", "Records in the lake.")
        self.findings = self._gauge("findings", "Proven second owners and writes of fenced owners in the lake.")
        self.possible = self._gauge("possible_overlaps", "Second owners that are possible, and not proven.")
        self.missing = self._gauge(
            "missing_records",
            "Records that compaction took before they were read, by the revisions of those after them.",
        )
        self.missing.set(nan)  # not 0: an alert asks whether it rises

    def _gauge(self, name: str, doc: str) -> Gauge:
        return Gauge(f"group_state_audit_{name}", doc, registry=self.registry)

    def told(self, found: list[Lag], lost: Mapping[int, int] | None = None) -> None:
        """`lost`: offsets of each partition that the lake's batches have found gone; `found` knows of those since. Ages
        go on growing until this is called again."""
        now = time.time()
        for lag in found:
            one = {name: gauge.labels(str(lag.partition)) for name, gauge in self._lags.items()}
            one["group_state_audit_lag_records"].set(lag.behind)
            one["group_state_audit_lost_records"].set((lost or {}).get(lag.partition, 0) + lag.gone)
            one["group_state_audit_compaction_lag_seconds"].set(lag.allowed_ms / 1000)
            written = None if lag.age_ms is None else now - lag.age_ms / 1000
            one["group_state_audit_oldest_seconds"].set_function(partial(_age, written))

    def serve(self, host: str, port: int) -> int:
        """Returns the port: another one if it was 0."""
        server, _ = start_http_server(port, host, registry=self.registry)
        return int(server.server_port)


def _age(written: float | None) -> float:
    return 0.0 if written is None else time.time() - written


@dataclass
class Continuous:
    """`every_s`: from the begin of a batch to that of the next; at most `max_records` in one, and then the next begins
    at once. A batch that fails is tried again; one that would fail again and again raises Refused. `maintain_every`: so
    many batches, and the lake's small files are put together; 0: never."""

    spark: SparkSession
    source: str
    lake: Lake
    options: Mapping[str, str]
    every_s: float = 30.0
    say: Say = lambda text: None
    metrics: Metrics = field(default_factory=Metrics)
    stopped: threading.Event = field(default_factory=threading.Event)
    maintain_every: int = 0
    _told: bool = False

    def run(self) -> None:
        """Until `stopped` is set. The first batch raises AuditError, for nothing has worked so far; but it waits for a
        topic that is not there yet."""
        self._wait_for_topic()
        if not self.stopped.is_set():
            self._once()
        while not self.stopped.is_set():
            try:
                self._once()
            except Refused:
                raise
            except AuditError as exc:
                self.metrics.ok.set(0)
                self.say(f"{exc} It is tried again in {self.every_s:g} s.")
                self.stopped.wait(self.every_s)

    def _wait_for_topic(self) -> None:
        """A sidecar makes the topic when it starts, which may be later than this."""
        said = False
        while not self.stopped.is_set():
            try:
                open_source(self.source, self.options).bounds()
                return
            except NoTopic as exc:
                self.metrics.ok.set(0)
                if not said:
                    self.say(f"{exc}; this waits until it is there")
                said = True
                self.stopped.wait(min(TOPIC_WAIT_S, self.every_s))

    def _once(self) -> None:
        """What is new, and then the rest of the interval."""
        begun = time.monotonic()
        self._look()  # a batch may take long, or fail
        batch = audit(self.spark, self.source, self.lake, self.options, self.say)
        self.lake = Lake.at(self.lake.base)
        took = time.monotonic() - begun
        self._tell(batch, took)
        self._look()
        if batch.new and self.maintain_every and (batch.number + 1) % self.maintain_every == 0:
            self.say(f"the lake: {maintain(self.lake)}")
        most = number(self.options, "max_records", 0)
        if not (batch.new and most and batch.records >= most):
            self.stopped.wait(max(0.0, self.every_s - took))

    def _tell(self, batch: Batch, took: float) -> None:
        """How it stands after a batch."""
        m = self.metrics
        m.ok.set(1)
        m.last.set(time.time())
        m.seconds.set(took)
        if batch.new or not self._told:
            self._told = True
            found = verdict(self.lake)
            m.records.set(found.records)
            m.findings.set(found.findings)
            m.possible.set(found.possible)
            m.missing.set(found.missing)
            if found.findings:
                self.say(f"{found.findings} findings: ask `sidecar audit overlaps` and `sidecar audit status`")

    def _look(self) -> None:
        """How far the lake is behind the topic, and what is lost."""
        source = open_source(self.source, self.options)
        if not isinstance(source, KafkaSource):
            return
        found = lags(source, last_batch(self.lake).position)
        self.metrics.told(found, lost_so_far(self.lake))
        for lag in found:
            if lag.lost_soon:
                self.say(_alert(lag))


def _alert(lag: Lag) -> str:
    if lag.gone:
        return f"partition {lag.partition}: {lag.gone:,} offsets were gone before they were read"
    return (
        f"partition {lag.partition}: {lag.behind:,} offsets are not in the lake, the oldest for "
        f"{(lag.age_ms or 0) / 1000:,.0f} s; compaction may remove them after {lag.allowed_ms / 1000:,.0f} s"
    )
