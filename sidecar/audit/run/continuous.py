"""The audit in a loop: a batch of new records at each interval, and an alert before history is lost.

A batch is the same as that of a single run, so after a stop or a kill the next process continues from the lake. There
is no other state: single runs and this loop may fill a lake in turn, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from sidecar.audit.errors import AuditError, NoTopic, Refused
from sidecar.audit.lake.batch import Batch
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.maintain import maintain
from sidecar.audit.run.pipeline import Say, audit
from sidecar.audit.run.verdict import Verdict, verdict
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.lag import Lag, lags
from sidecar.audit.source.uri import open_source
from sidecar.audit.tables.gold import GOLD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "group_state_audit_"
PER_PARTITION = {
    "lag_records": "Offsets that are not in the lake yet.",
    "compaction_lag_seconds": "Age at which compaction may remove a record.",
    "oldest_seconds": "Age of the oldest record that is not in the lake, at most.",
}
OF_THE_LAKE = {
    "up": "1 if the last batch succeeded.",
    "last_success_timestamp_seconds": "When a batch last succeeded.",
    "batch_seconds": "How long the last batch took.",
    "records": "Records in the lake.",
    "findings": "Second owners (proven), writes of fenced ones, epochs that went back.",
    "complete": "1 if every record is there, from the first one on.",
    "possible_overlaps": "Second owners that are possible, and not proven.",
    "lost_records": "Records that were gone before they were read, as found out since the start.",
    "missing_records": "Values that compaction took before they were read, in the whole lake, by revisions.",
}
TOPIC_WAIT_S = 5.0
"""Interval between two checks for a topic that does not exist yet."""


class Metrics:
    """Prometheus metrics of the audit."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lags = {
            name: Gauge(PREFIX + name, doc, ["partition"], registry=self.registry)
            for name, doc in PER_PARTITION.items()
        }
        self._of_the_lake = {n: Gauge(PREFIX + n, doc, registry=self.registry) for n, doc in OF_THE_LAKE.items()}

    def set(self, **values: float) -> None:
        for name, value in values.items():
            self._of_the_lake[name].set(value)

    def set_lag(self, lag: Lag) -> None:
        """Sets the lag gauges of a partition. The oldest record's age keeps rising until the next call: while batches
        fail, history comes closer to its loss; where nothing was left to read, a record may have been written since."""
        gauges = {name: gauge.labels(str(lag.partition)) for name, gauge in self._lags.items()}
        gauges["lag_records"].set(lag.behind)
        gauges["compaction_lag_seconds"].set(lag.allowed_ms / 1000)
        since = time.monotonic() - (lag.age_ms or 0) / 1000
        gauges["oldest_seconds"].set_function(lambda: time.monotonic() - since)

    def serve(self, host: str, port: int) -> int:
        """Serves the metrics over HTTP. Returns the port, which the system chooses if `port` is 0."""
        server, _ = start_http_server(port, host, registry=self.registry)
        return int(server.server_port)


@dataclass
class Continuous:
    """A loop of batches. `every_s`: from the start of a batch to that of the next; if `max_records` left some,
    the next starts at once. A failed batch is tried again, unless it raises Refused. `maintain_every`: batches after
    which the lake's small files are merged; 0: never."""

    spark: SparkSession
    source: str
    lake: Lake
    options: Mapping[str, str]
    every_s: float = 30.0
    say: Say = lambda text: None
    metrics: Metrics = field(default_factory=Metrics)
    stopped: threading.Event = field(default_factory=threading.Event)
    maintain_every: int = 0
    _baseline: Verdict | None = None
    """The verdict at the start, or after the first batch of a new lake. `_lost` counts only losses since then: earlier
    compaction is no loss of this audit."""
    _last_verdict: Verdict | None = None
    """The last verdict."""
    _worked: bool = False
    """Whether a batch was done."""

    def run(self) -> None:
        """Runs batches until `stopped` is set. Waits for a topic that does not exist yet. The first batch raises
        AuditError, because nothing has worked so far; later ones are tried again."""
        if 0 <= self.lake.last_batch() == self.lake.done(GOLD.values()):
            self._baseline = self._judge()
        waited = False
        while not self.stopped.is_set():
            try:
                self._once()
            except (AuditError, OSError) as exc:  # such as a lake on a full disk
                waits = isinstance(exc, NoTopic) and not self._worked  # a sidecar that starts later may create it
                if isinstance(exc, Refused) or not (waits or self._worked):
                    raise
                self.metrics.set(up=0)
                if not waits:
                    self.say(f"{exc} It is tried again in {self.every_s:g} s.")
                elif not waited:
                    self.say(f"{exc}; this waits until it is there")
                waited = waits
                self.stopped.wait(min(TOPIC_WAIT_S, self.every_s) if waits else self.every_s)

    def _once(self) -> None:
        """Runs one batch, and waits for the rest of the interval unless `max_records` left some."""
        begun = time.monotonic()
        for lag in self._look():  # a batch may take long, or fail
            if lag.lost_soon:
                self.say(_alert(lag))
        batch = audit(self.spark, self.source, self.lake, self.options, self.say)
        self._worked = True
        self.lake = Lake.at(self.lake.base)
        took = time.monotonic() - begun
        self._report(batch, took)
        self._look()
        if batch.new and self.maintain_every and (batch.number + 1) % self.maintain_every == 0:
            self.say(f"the lake: {maintain(self.lake)}")
        if not (batch.new and batch.more):
            self.stopped.wait(max(0.0, self.every_s - took))

    def _report(self, batch: Batch, took: float) -> None:
        """Updates metrics and verdict after a batch, and reports findings."""
        self.metrics.set(up=1, last_success_timestamp_seconds=time.time(), batch_seconds=took)
        if batch.new or self._last_verdict is None:
            judged = self._judge()
            self._baseline = self._baseline or judged
            if judged.findings:
                self.say(f"{judged.findings} findings: ask `sidecar audit overlaps` and `sidecar audit status`")

    def _judge(self) -> Verdict:
        """Returns the lake's verdict, and sets the metrics by it."""
        self._last_verdict = judged = verdict(self.lake)
        self.metrics.set(
            records=judged.records,
            findings=judged.findings,
            complete=judged.complete,
            possible_overlaps=judged.possible,
            missing_records=judged.completeness.missing,
        )
        return judged

    def _look(self) -> list[Lag]:
        """Measures how far the lake is behind the topic, and sets the metrics. Sources other than Kafka have no lag."""
        source = open_source(self.source, self.options)
        if not isinstance(source, KafkaSource):
            return []
        measured = lags(source, self.lake.batch().position)
        for lag in measured:
            self.metrics.set_lag(lag)
        self.metrics.set(lost_records=self._lost() + sum(lag.lost for lag in measured))
        return measured

    def _lost(self) -> int:
        """Returns losses since `_baseline`: unread offsets or, by revisions, missing values. Both may count the same
        records, so this is the greater number."""
        was, now = self._baseline, self._last_verdict
        if was is None or now is None:
            return 0
        return max(now.lost - was.lost, now.completeness.missing - was.completeness.missing)


def _alert(lag: Lag) -> str:
    if lag.lost:
        return f"partition {lag.partition}: {lag.lost:,} offsets were gone before they were read"
    return (
        f"partition {lag.partition}: {lag.behind:,} offsets are not in the lake, the oldest for "
        f"{(lag.age_ms or 0) / 1000:,.0f} s; compaction may remove them after {lag.allowed_ms / 1000:,.0f} s"
    )
