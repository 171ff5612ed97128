"""Writes docs/reference/metrics.md from the tables of metrics. `python -m tools.metrics_table`, from the repository's root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from sidecar.audit.run import continuous
from sidecar.coordinator.inspect.lag_exporter import FAMILIES
from sidecar.coordinator.runtime.background import BACKGROUND
from sidecar.process.metric_definitions import PARTS, Metric

PAGE = Path("docs/reference/metrics.md")
HEAD = """# Metrics

Made by `python -m tools.metrics_table` from the tables in the code; `/metrics` of the address `admin` gives them. [runbook.md](../operate/runbook.md) says what
to do about wrong values; boards and alerts are in `deploy/grafana` and `deploy/prometheus` ([operations.md](../operate/operations.md#metrics)).

Values are read at each scrape; one of 10,000 groups of five members holds the event loop for at most {slice} at a time (`tests/see/test_bounds.py`). Series do not
grow with the groups: no label is a member, only the two metrics of five groups each name groups, and `exporter.series` limits the exporter.

Names that end in `_total` are counters, the others gauges, if nothing is said. "Kafka" names the closest metric of Kafka's group coordinator (KIP-848, KIP-1263; MBean `kafka.server:type=group-coordinator-metrics` where none is named).
Kafka's rate is `rate(..._total[5m])` here, its percentile `histogram_quantile(0.99, sum by (le) (rate(..._bucket[5m])))`. A histogram has the series `..._bucket`,
`..._sum` and `..._count`.
"""
EXPORTER = """## Drop-in of kafka_exporter

Names, labels and texts are those of [kafka_exporter](https://github.com/danielqsj/kafka_exporter), so its boards and alerts go on. Scrape every sidecar. A group
comes from its owner, a partition of a topic from the sidecar beside its leader, `kafka_brokers` from the owner of the state topic's first partition. So a sum counts
everything once; a query without a sum gets the label `instance` in addition.

Only managed groups are there, and only partitions with a committed offset. `sidecar_exporter_age_seconds` says how old the values are (at most
`exporter.interval_ms`, 30 s). A commit newer than the known end of its partition counts as no lag, where kafka_exporter shows a negative one.
`kafka_broker_info`, `kafka_topic_partition_replicas`, `_in_sync_replica`, `_leader_is_preferred` and the ZooKeeper metrics are missing.

[`exporter.*`](settings.md#exporter) sets what is exported. Above `exporter.series`, the rows that stand first here are kept, and within a name the first by label.
"""
PYTHON = """## Process, as every Prometheus client has it

{names}.
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
        parts.append(_list([_row(m) for m in table.values()]))
    parts.append("## Background threads\n\nOver the last 30 seconds, named as the usual JMX exporter names Kafka's.\n")
    parts.append(_list(_background()))
    parts.append(EXPORTER)
    parts.append(_list([(name, "gauge", ", ".join(labels), "", "") for name, (_, labels) in FAMILIES.items()]))
    parts.append(PYTHON.format(names=", ".join(f"`{_series(f)}`" for f in _process())))
    parts.append(AUDIT)
    labels = {continuous.PREFIX + name: "partition" for name in continuous.PER_PARTITION}
    families = continuous.Metrics().registry.collect()
    parts.append(_list([(_series(f), f.type, labels.get(f.name, ""), f.documentation, "") for f in families]))
    return "\n".join(parts)


def names() -> set[str]:
    """Every metric that a query may name, histograms by their series."""
    found = {*FAMILIES, *BACKGROUND, "up"}
    for table in PARTS.values():
        for m in table.values():
            name = _called(m)
            found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if _type(m) == "histogram" else {name}
    registry = continuous.Metrics().registry
    found |= {_series(f) for f in [*_process(), *registry.collect()]}
    return found


def _series(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


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


def _background() -> list[tuple[str, ...]]:
    """Percentiles of the same as one row."""
    rows: dict[str, tuple[str, ...]] = {}
    for name, (about, kafka) in BACKGROUND.items():
        of, _, percentile = name.rpartition("_")
        if of in rows:
            rows[of] = (f"{rows[of][0]}`, `_{percentile}", *rows[of][1:])
        else:
            rows[of] = (name, "gauge", "", about.replace(f", {percentile}", ""), kafka.removesuffix(f"-{percentile}"))
    return list(rows.values())


def _list(rows: list[tuple[str, ...]]) -> str:
    """Labels stand behind the name, as a query has them. A counter is one by the end of its name, a gauge is the rest."""
    lines = []
    for name, kind, labels, about, kafka in rows:
        series = f"{name}{{{labels.replace(', ', ',')}}}" if labels else name
        histogram = " (histogram)" if kind == "histogram" else ""
        meaning = f": {about}" if about else ""
        lines.append(f"- `{series}`{histogram}{meaning}" + (f" *Kafka:* {kafka}." if kafka else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
