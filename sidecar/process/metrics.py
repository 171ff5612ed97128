"""Prometheus metrics: base units, closed label sets, no member or group ids. docs/operations.md explains each.

`METRICS` is the table; the core's `Count` effects, the coordinator and the fronts name their metrics by its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sidecar.link.ports import Figure


@dataclass(frozen=True)
class _Metric:
    kind: type[Counter | Gauge | Histogram]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = Histogram.DEFAULT_BUCKETS


LAGS_MS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1_000, 2_000, 5_000)
METRICS: dict[str, _Metric] = {
    "opened": _Metric(Counter, "sidecar_connections_opened", "Client connections accepted."),
    "closed": _Metric(Counter, "sidecar_connections_closed", "Client connections closed.", ("cause",)),
    "active": _Metric(Gauge, "sidecar_connections_active", "Client connections open now."),
    "requests": _Metric(Counter, "sidecar_requests", "Requests the sidecar looked into.", ("api", "decision")),
    "refused": _Metric(Counter, "sidecar_frames_refused", "Frames that closed their connection.", ("reason",)),
    "tls_handshakes": _Metric(
        Counter,
        "sidecar_tls_handshakes",
        "Clients that came for TLS, by what became of them: done, or why it did not come about.",
        ("outcome",),
    ),
    "tls_under_way": _Metric(Gauge, "sidecar_tls_handshakes_under_way", "TLS handshakes that have begun."),
    "tls_reloads": _Metric(
        Counter, "sidecar_tls_reloads", "How often the listener's TLS files were read again.", ("result",)
    ),
    "tls_expiry": _Metric(
        Gauge,
        "sidecar_tls_certificate_expiry_seconds",
        "When the listener's certificate ends, in Unix time; 0: it has none.",
    ),
    "paused": _Metric(
        Counter, "sidecar_reading_paused", "How often a client was read no further for a while, by reason.", ("why",)
    ),
    "reserved": _Metric(
        Gauge, "sidecar_reserved_bytes", "What sessions have together of the common half of limits.queued_bytes."
    ),
    "rebalances": _Metric(Counter, "sidecar_rebalances", "Bumps of a group's epoch; rebalances begun.", ("protocol",)),
    "completed_rebalances": _Metric(
        Counter,
        "sidecar_completed_rebalances",
        "Rebalances of classic groups that came to an assignment.",
        ("protocol",),
    ),
    "migrations": _Metric(
        Counter, "sidecar_migrations", "Groups that changed their protocol while they lived; to: which.", ("to",)
    ),
    "stale_claims": _Metric(
        Counter,
        "sidecar_stale_claims",
        "Topics of which a classic member claimed partitions that others have (KIP-792); told: whether the member said "
        "its generation.",
        ("told",),
    ),
    "void_records": _Metric(
        Gauge,
        "sidecar_void_records",
        "Records of the state topic from others than the owner at that time, since the start; there should be none.",
    ),
    "unreadable_groups": _Metric(
        Gauge, "sidecar_unreadable_groups", "Groups served by nobody, because their records cannot be read."
    ),
    "state_topic_faults": _Metric(
        Gauge, "sidecar_state_topic_faults", "Settings of the state topic that may lose state; the log names them."
    ),
    "owned": _Metric(Gauge, "sidecar_owned_partitions", "Partitions of the state topic served here."),
    "parked": _Metric(Gauge, "sidecar_parked_replies", "Requests the coordinator has not answered yet."),
    "assignments": _Metric(Counter, "sidecar_assignments", "Target assignments computed and written.", ("assignor",)),
    "assignor_failures": _Metric(
        Counter, "sidecar_assignor_failures", "Assignor runs that failed or took too long.", ("assignor",)
    ),
    "takeover_seconds": _Metric(Histogram, "sidecar_takeover_seconds", "From assignment to serving."),
    "loop_lag": _Metric(
        Histogram,
        "sidecar_loop_lag_seconds",
        "How much later than it asked for a timer came: for so long the event loop was busy with something else.",
        buckets=tuple(ms / 1000 for ms in LAGS_MS),
    ),
    "loop_busy": _Metric(
        Histogram,
        "sidecar_loop_busy_seconds",
        "How much of that the event loop worked itself; the rest it waited for a processor.",
        buckets=tuple(ms / 1000 for ms in LAGS_MS),
    ),
    "fenced": _Metric(Counter, "sidecar_fenced", "Shards dropped after a failed append.", ("why",)),
    "placeholders_wanted": _Metric(
        Gauge, "sidecar_placeholders_wanted", "Groups with members here: each has a placeholder at its broker."
    ),
    "placeholders_seated": _Metric(Gauge, "sidecar_placeholders_seated", "Placeholders that their brokers know."),
    "placeholders_lost": _Metric(
        Counter, "sidecar_placeholders_lost", "Placeholders that their brokers did not know any more."
    ),
    "placeholder_troubles": _Metric(
        Counter, "sidecar_placeholder_troubles", "Attempts to seat a placeholder, or to give one up, that failed."
    ),
    "placeholder_seconds": _Metric(
        Histogram, "sidecar_placeholder_seconds", "From when a placeholder is wanted until commits go on in its name."
    ),
    "patterns_differ": _Metric(
        Gauge,
        "sidecar_patterns_differ",
        "Sidecars whose own patterns of groups are others than ours, while none are stored.",
    ),
    "groups_leaving": _Metric(
        Gauge, "sidecar_groups_leaving", "Groups that are to go back to the brokers and have records here still."
    ),
    "groups_forgotten": _Metric(
        Counter, "sidecar_groups_forgotten", "Groups without members removed because their offsets were gone."
    ),
    "moves": _Metric(
        Counter, "sidecar_group_moves", "Groups taken in from the brokers and given back to them.", ("to", "outcome")
    ),
    "handler_faults": _Metric(Counter, "sidecar_handler_faults", "Requests whose handler broke: bugs. Alert above 0."),
    "invariant_violations": _Metric(
        Counter,
        "sidecar_invariant_violations",
        "Contradictions in the state, turns that broke, records that cannot be decoded. Alert above 0.",
    ),
}


class _Counted:
    """A counter whose steps may be counted elsewhere: prometheus's own takes a lock for each, which every request
    would pay for. What `value` has come to is handed on when somebody looks."""

    def __init__(self, counter: Counter, settled: list[Callable[[], None]]) -> None:
        self.inc = counter.inc
        self._counter = counter
        self._settled = settled

    def set_function(self, value: Callable[[], float]) -> None:
        told = 0.0

        def settle() -> None:
            nonlocal told
            now = value()
            self._counter.inc(now - told)
            told = now

        self._settled.append(settle)


def _make(m: _Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if m.kind is Histogram:
        return Histogram(m.name, m.help, m.labels, registry=registry, buckets=m.buckets)
    return m.kind(m.name, m.help, m.labels, registry=registry)


class Metrics:
    """Callable: the metric of that name with these label values."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made = {key: _make(m, self.registry) for key, m in METRICS.items()}
        self._settled: list[Callable[[], None]] = []

    def __call__(self, name: str, *labels: str) -> Figure:
        """Raises KeyError for a name that is not in the table."""
        made = self._made[name]
        figure: Figure = made.labels(*labels) if labels else made  # type: ignore[assignment]
        if isinstance(figure, Counter):
            return _Counted(figure, self._settled)  # type: ignore[return-value]
        return figure

    def settle(self) -> None:
        """Bring the registry up to date."""
        for settle in self._settled:
            settle()

    def text(self) -> bytes:
        self.settle()
        return generate_latest(self.registry)
