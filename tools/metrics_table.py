"""Writes docs/reference/metrics.md from the tables of metrics. `python -m tools.metrics_table`, from the repository's root."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from sidecar.audit import continuous
from sidecar.coordinator.inspect.lag_exporter import FAMILIES
from sidecar.coordinator.runtime.background import BACKGROUND
from sidecar.process.figures import PARTS, Metric

PAGE = Path("docs/reference/metrics.md")
HEAD = """# Metrics

Made by `python -m tools.metrics_table` from the tables in the code. `/metrics` of the address `admin` gives them. What to do about a value that is wrong is
said in [runbook.md](../operate/runbook.md); boards and alerts are in `deploy/grafana` and `deploy/prometheus` ([operations.md](../operate/operations.md#metrics)).

Values are read when somebody scrapes. None has a member's id as a label, and only two have a group's: those that name the five groups which have most of
something. So the number of series does not grow with the groups, but for the exporter's, which is limited by `exporter.series`. A scrape with 10,000 groups of
five members takes the event loop no longer than {slice} at a time (`tests/see/test_bounds.py`).

"Kafka" names the metric of Kafka's group coordinator that says the same or comes closest (KIP-848, KIP-1263; MBean
`kafka.server:type=group-coordinator-metrics`, if nothing else is said). A rate of Kafka's is `rate(..._total[5m])` here, and an average or a percentile comes
from the histogram: `histogram_quantile(0.99, sum by (le) (rate(..._bucket[5m])))`. A histogram has the names `..._bucket`, `..._sum` and `..._count`.
"""
EXPORTER = """## Drop-in of kafka_exporter

Names, labels and texts are those of [kafka_exporter](https://github.com/danielqsj/kafka_exporter), so boards and alerts made for it go on. Every sidecar is
scraped, and each says what is its own: a group is told by its owner, a partition of a topic by the sidecar beside the partition's leader, `kafka_brokers` by the
owner of the first partition of the state topic. A sum over all sidecars counts everything once; a query without a sum gets the label `instance` in addition.
Only managed groups are there. Values are at most `exporter.interval_ms` (30 s) old; `sidecar_exporter_age_seconds` says how old. A commit that is newer than the
known end of its partition counts as no lag, where kafka_exporter shows a negative one; partitions without a committed offset are not shown.

`kafka_broker_info`, `kafka_topic_partition_replicas`, `_in_sync_replica`, `_leader_is_preferred` and the ZooKeeper metrics are not there. Settings:
`exporter.interval_ms` (0: off), `exporter.series`, `exporter.include`, `exporter.exclude`, `exporter.topics`. If there are more than `exporter.series` series, those
are kept that stand first in this table, and within a name the first in the order of their labels.
"""
PYTHON = """## Process

Those of `prometheus_client`, by the names that every Prometheus client uses.
"""
AUDIT = """## Audit

What `sidecar audit stream --metrics HOST:PORT` tells ([audit.md](../use/audit.md)).
"""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    parts = [HEAD.format(slice="some 10 milliseconds")]
    for title, table in PARTS.items():
        parts.append(f"## {title}\n")
        parts.append(_table([_row(m) for m in table.values()]))
    parts.append("## Background threads\n\nOver the last 30 seconds, named as the usual JMX exporter names Kafka's.\n")
    parts.append(_table([(name, "gauge", "", about, kafka) for name, (about, kafka) in BACKGROUND.items()]))
    parts.append(EXPORTER)
    parts.append(_table([(name, "gauge", ", ".join(labels), about, "") for name, (about, labels) in FAMILIES.items()]))
    parts.append(PYTHON)
    parts.append(_table([(f.name, f.type, "", f.documentation, "") for f in _process()]))
    parts.append(AUDIT)
    lags = [(name, "gauge", "partition", about, "") for name, (about, _) in continuous.PER_PARTITION.items()]
    seen = {name for name, *_ in lags}
    families = [f for f in continuous.Metrics().registry.collect() if f.name not in seen]
    parts.append(_table([*lags, *((f.name, f.type, "", f.documentation, "") for f in families)]))
    return "\n".join(parts)


def names() -> set[str]:
    """Every metric that a query may name, histograms by their series."""
    found = {*FAMILIES, *BACKGROUND, "up"}
    for table in PARTS.values():
        for m in table.values():
            name = _called(m)
            found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if _type(m) == "histogram" else {name}
    registry = continuous.Metrics().registry
    found |= {f.name + ("_total" if f.type == "counter" else "") for f in [*_process(), *registry.collect()]}
    return found


def _process() -> list:  # type: ignore[type-arg]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return list(registry.collect())


def _called(m: Metric) -> str:
    return m.name + "_total" if m.kind is Counter else m.name


def _type(m: Metric) -> str:
    return m.kind.__name__.lower()


def _row(m: Metric) -> tuple[str, ...]:
    return _called(m), _type(m), ", ".join(m.labels), m.help, m.kafka


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = ["| name | type | labels | meaning | Kafka |", "|---|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {labels} | {about} | {kafka} |" for name, kind, labels, about, kafka in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
