"""Settings of the front."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from sidecar.api.call import OwnNames, Sizes
from sidecar.kafka.cluster import Address
from sidecar.wire.frames import Limits

COMMIT_LANES = 8
"""Connections to each broker that keeps offsets of groups owned here. A broker answers one request of a connection at
a time, and a commit waits for all in-sync replicas."""


@dataclass(frozen=True)
class DoorSettings:
    """Limits of connections. `per_ip_max`: of one address; `per_ip_overrides`: of single addresses instead. `idle_s` 0:
    connections may be quiet for ever. `first_s`: a connection without any request is closed after this time. `rate`:
    new connections a second, and at once; `line`: connections beyond the rate that wait; further ones are closed.
    `repeat_s`: interval between log lines on refusals for the same reason."""

    connections_max: int = 10_000
    per_ip_max: int = 2_147_483_647
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_s: float = 600.0
    first_s: float = 30.0
    repeat_s: float = 10.0
    rate: int = 2_147_483_647
    line: int = 1_024


@dataclass(frozen=True)
class FrontSettings:
    """Settings of a front. `hold_ms`: how long a request waits for a coordinator that is still starting. `held_bytes`:
    of one session; `all_unread_bytes`: of what was sent and is not read, of all sessions together, 0: no limit;
    `unproven_bytes`: of a request that is looked into before the broker has let its client in; `remembered_bytes`: of
    rights and of steady heartbeats of all sessions; `memory_bytes`: of requests of all sessions that are not handled
    yet, 0: no limit; `large_requests`: that are worked on at a time; `parked_large_requests`:
    that wait for another broker or the coordinator beside these. `upstream_tls()`: for a client's connection to the
    broker, whose certificate must name `upstream_host` ("": the host of `broker`). `silence_ms`: how long the broker
    owes an answer before it is silent, 0: it never is. `own`: names that belong to the sidecars alone, unless the
    client's principal is in `own_principals`. `internal_topic`: shown to clients as internal."""

    node_id: int
    broker: Address
    limits: Limits
    managed: Callable[[str], bool]
    managing: bool
    new_id: Callable[[], str] = lambda: str(uuid4())
    header_timeout_s: float = 30.0
    held_bytes: int = 65_536
    all_unread_bytes: int = 0
    memory_bytes: int = 0
    large_requests: int = 3
    parked_large_requests: int = 4
    door: DoorSettings = DoorSettings()
    commit_lanes: int = COMMIT_LANES
    unproven_bytes: int = 4_096
    remembered_bytes: int = 128 << 20
    steady_replies: int = 16
    access_keep_ms: int = 10_000
    hold_ms: int = 3_000
    silence_ms: int = 0
    modern_as_classic: bool = False
    share: bool = False
    """Whether share groups may be managed."""
    streams: bool = False
    """Whether streams groups may be managed."""
    sizes: Sizes = Sizes()
    upstream_tls: Callable[[], ssl.SSLContext | None] = lambda: None
    upstream_host: str = ""
    own: OwnNames = OwnNames()
    own_principals: frozenset[str] = frozenset()
    internal_topic: str = ""
