"""Prometheus metrics: the way of the values from the code to a scrape. Their table is metric_definitions.py.

Frequent events are counted where they happen, in plain integers, which a scrape reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from sidecar.link.ports import Figure
from sidecar.process.metric_definitions import METRICS, Metric

__all__ = ["METRICS", "Metrics"]


class _Spread:
    """A histogram with its labels fixed. prometheus_client's own takes a lock for each of its buckets; this one is used
    by the event loop alone."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Spreads(Collector):
    def __init__(self, m: Metric) -> None:
        self._metric = m
        self._by_labels: dict[tuple[str, ...], _Spread] = {}
        if not m.labels:
            self.labels()

    def labels(self, *values: str) -> _Spread:
        spread = self._by_labels.get(values)
        if spread is None:
            if len(values) != len(self._metric.labels):
                raise ValueError(f"{self._metric.name} has the labels {self._metric.labels}")
            spread = self._by_labels[values] = _Spread(self._metric.buckets)
        return spread

    def collect(self) -> Iterable[HistogramMetricFamily]:
        m = self._metric
        family = HistogramMetricFamily(m.name, m.help, labels=m.labels)
        bounds = [*map(str, m.buckets), "+Inf"]
        for values, spread in self._by_labels.items():
            so_far, buckets = 0, []
            for bound, count in zip(bounds, spread.counts, strict=True):
                so_far += count
                buckets.append((bound, float(so_far)))
            family.add_metric(values, buckets, spread.sum)
        yield family


class _Counted:
    """A counter whose steps may be counted elsewhere: prometheus_client's own takes a lock for each, which every
    request would pay for. A scrape adds the difference of `value` since the last one."""

    def __init__(self, counter: Counter, settled: list[Callable[[], None]]) -> None:
        self.inc = counter.inc
        self._counter = counter
        self._settled = settled

    def set_function(self, value: Callable[[], float]) -> None:
        counted = 0.0

        def settle() -> None:
            nonlocal counted
            now = value()
            self._counter.inc(now - counted)
            counted = now

        self._settled.append(settle)


class _Alone:
    """The part of a registry that writing out one collector needs."""

    def __init__(self, collector: Collector) -> None:
        self.collect = collector.collect


def _make(m: Metric, registry: CollectorRegistry) -> Counter | Gauge | _Spreads:
    if m.kind is Histogram:
        spreads = _Spreads(m)
        registry.register(spreads)
        return spreads
    made: Counter | Gauge = m.kind(m.name, m.help, m.labels, registry=registry)  # type: ignore[assignment]
    return made


class Metrics:
    """All metrics. A call returns the metric of that name with these label values."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made = {key: _make(m, self.registry) for key, m in METRICS.items()}
        self._settled: list[Callable[[], None]] = []
        self._collectors: list[Collector] = [*self._made.values()]
        self.add(ProcessCollector(registry=None))

    def add(self, collector: Collector) -> None:
        """Adds a collector that has names of its own."""
        self.registry.register(collector)
        self._collectors.append(collector)

    def __call__(self, name: str, *labels: str) -> Figure:
        """Returns the metric. Raises KeyError for a name that is not in the table."""
        made = self._made[name]
        figure: Figure = made.labels(*labels) if labels or isinstance(made, _Spreads) else made  # type: ignore[assignment]
        if isinstance(figure, Counter):
            return _Counted(figure, self._settled)  # type: ignore[return-value]
        return figure

    def only(self, name: str, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Sets a gauge to these values, by labels, and removes all others."""
        made = self._made[name]
        assert isinstance(made, Gauge)
        made.clear()
        for labels, value in values:
            made.labels(*labels).set(value)

    def settle(self) -> None:
        """Brings the registry up to date."""
        for settle in self._settled:
            settle()

    def parts(self) -> Iterator[bytes]:
        """Yields the text, a family at a time: other work can be done in between."""
        self.settle()
        for collector in self._collectors:
            yield generate_latest(_Alone(collector))

    def text(self) -> bytes:
        return b"".join(self.parts())
