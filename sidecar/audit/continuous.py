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
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from sidecar.audit.errors import AuditError, NoTopic, Refused, number
from sidecar.audit.ingest import last_batch
from sidecar.audit.ingest_plan import Batch
from sidecar.audit.lake import Lake
from sidecar.audit.maintain import maintain
from sidecar.audit.pipeline import Verdict, audit, to_date, verdict
from sidecar.audit.source_kafka import KafkaSource
from sidecar.audit.source_lag import Lag, lags
from sidecar.audit.source_uri import open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
OLDEST = "group_state_audit_oldest_seconds"
PER_PARTITION: dict[str, tuple[str, Callable[[Lag], float]]] = {
    "group_state_audit_lag_records": ("Offsets that are not in the lake yet.", lambda r: r.behind),
    "group_state_audit_compaction_lag_seconds": (
        "Age at which compaction may remove a record.",
        lambda r: r.allowed_ms / 1000,
    ),
}
TOPIC_WAIT_S = 5.0
"""Between two looks for a topic that is not there yet."""


class Metrics:
    """What Prometheus is told. Names begin with group_state_audit_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lags = {
            name: Gauge(name, doc, ["partition"], registry=self.registry) for name, (doc, _) in PER_PARTITION.items()
        }
        self.ok = self._gauge("up", "1 if the last batch succeeded.")
        self.last = self._gauge("last_success_timestamp_seconds", "When a batch last succeeded.")
        self.seconds = self._gauge("batch_seconds", "How long the last batch took.")
        self.records = self._gauge("records", "Records in the lake.")
        self.findings = self._gauge("findings", "Second owners (proven), writes of fenced ones, epochs that went back.")
        self.complete = self._gauge("complete", "1 if every record is there, from the first one on.")
        self.possible = self._gauge("possible_overlaps", "Second owners that are possible, and not proven.")
        self.lost = self._gauge(
            "lost_records", "Records that were gone before they were read, as found out since the start."
        )
        self.missing = self._gauge(
            "missing_records", "Values that compaction took before they were read, in the whole lake, by revisions."
        )
        self._oldest = Gauge(
            OLDEST, "Age of the oldest record that is not in the lake, at most.", ["partition"], registry=self.registry
        )

    def _gauge(self, name: str, doc: str) -> Gauge:
        return Gauge(f"group_state_audit_{name}", doc, registry=self.registry)

    def told(self, found: list[Lag]) -> None:
        """How old the oldest record is goes on from here until this is called again: where no batch succeeds, history
        is lost one day, and where nothing was left to read, something may have been written since."""
        for lag in found:
            age = partial(_aged, (lag.age_ms or 0) / 1000, time.monotonic())
            self._oldest.labels(str(lag.partition)).set_function(age)
        for name, (_, value) in PER_PARTITION.items():
            for lag in found:
                self._lags[name].labels(str(lag.partition)).set(value(lag))

    def serve(self, host: str, port: int) -> int:
        """Returns the port: another one if it was 0."""
        server, _ = start_http_server(port, host, registry=self.registry)
        return int(server.server_port)


def _aged(age_s: float, since: float) -> float:
    return age_s + time.monotonic() - since


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
    _begun_with: Verdict | None = None
    """What the lake said at the start, or after the first batch of a new one: what compaction took before that is no
    loss of this audit."""
    _found: Verdict | None = None

    def run(self) -> None:
        """Until `stopped` is set. The first batch raises AuditError, for nothing has worked so far; but it waits for a
        topic that is not there yet."""
        if to_date(self.lake):
            self._begun_with = self._judge()
        self._wait_for_topic()
        if not self.stopped.is_set():
            self._once()
        while not self.stopped.is_set():
            try:
                self._once()
            except Refused:
                raise
            except (AuditError, OSError) as exc:  # such as a lake on a full disk
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
        for lag in self._look():  # a batch may take long, or fail
            if lag.lost_soon:
                self.say(_alert(lag))
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
        if batch.new or self._found is None:
            found = self._judge()
            self._begun_with = self._begun_with or found
            if found.findings:
                self.say(f"{found.findings} findings: ask `sidecar audit overlaps` and `sidecar audit status`")

    def _judge(self) -> Verdict:
        """What the lake says, which the metrics tell as well."""
        self._found = found = verdict(self.lake)
        m = self.metrics
        m.records.set(found.records)
        m.findings.set(found.findings)
        m.possible.set(found.possible)
        m.complete.set(found.complete)
        m.missing.set(found.missing)
        return found

    def _look(self) -> list[Lag]:
        """How far the lake is behind the topic, and what is lost."""
        source = open_source(self.source, self.options)
        if not isinstance(source, KafkaSource):
            return []
        found = lags(source, last_batch(self.lake).position)
        self.metrics.told(found)
        self.metrics.lost.set(self._lost() + sum(lag.gone for lag in found))
        return found

    def _lost(self) -> int:
        """Offsets that were gone from the topic, or values that compaction took: what revisions tell may be either."""
        was, now = self._begun_with, self._found
        return 0 if was is None or now is None else max(now.lost - was.lost, now.missing - was.missing)


def _alert(lag: Lag) -> str:
    if lag.gone:
        return f"partition {lag.partition}: {lag.gone:,} offsets were gone before they were read"
    return (
        f"partition {lag.partition}: {lag.behind:,} offsets are not in the lake, the oldest for "
        f"{(lag.age_ms or 0) / 1000:,.0f} s; compaction may remove them after {lag.allowed_ms / 1000:,.0f} s"
    )
