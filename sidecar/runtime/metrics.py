"""Prometheus metrics: base units, closed label sets, no member or group ids. docs/operations.md explains each."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.opened = Counter("sidecar_connections_opened", "Client connections accepted.", registry=r)
        self.closed = Counter("sidecar_connections_closed", "Client connections closed.", ["cause"], registry=r)
        self.active = Gauge("sidecar_connections_active", "Client connections open now.", registry=r)
        self.requests = Counter(
            "sidecar_requests", "Requests the sidecar looked into.", ["api", "decision"], registry=r
        )
        self.refused = Counter("sidecar_frames_refused", "Frames that closed their connection.", ["reason"], registry=r)
        self.rebalances = Counter("sidecar_rebalances", "Bumps of a group's epoch.", ["protocol"], registry=r)
        self.owned = Gauge("sidecar_owned_partitions", "Partitions of the state topic served here.", registry=r)
        self.parked = Gauge("sidecar_parked_replies", "Replies waiting for a commit.", registry=r)
        self.assignments = Counter(
            "sidecar_assignments", "Target assignments computed and written.", ["assignor"], registry=r
        )
        self.assignor_failures = Counter(
            "sidecar_assignor_failures", "Assignor runs that failed or took too long.", ["assignor"], registry=r
        )
        self.takeover_seconds = Histogram("sidecar_takeover_seconds", "From assignment to serving.", registry=r)
        self.fenced = Counter("sidecar_fenced", "Shards dropped after a failed append.", ["why"], registry=r)
        self.handler_faults = Counter(
            "sidecar_handler_faults", "Requests whose handler broke: bugs. Alert above 0.", registry=r
        )
        self.invariant_violations = Counter(
            "sidecar_invariant_violations", "Contradictions found in the state. Alert above 0.", registry=r
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
