"""Turns the process's settings into those of the front, and into clusters of brokers. coordinator_parts.py has the
coordinator's."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from sidecar.api.call import OwnNames, Sizes
from sidecar.core.vocabulary.group_patterns import Patterns
from sidecar.front.settings import DoorSettings, FrontSettings
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.credentials import Login
from sidecar.kafka.security import PLAINTEXT
from sidecar.process.limits import LimitsSection
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings
from sidecar.wire.frames import Limits


def managed_by(settings: Settings) -> Patterns:
    """Returns the patterns of managed groups by the settings."""
    return Patterns(settings.groups.include, settings.groups.exclude, [settings.ownership.group])


def connections_per_ip(limits: LimitsSection) -> int:
    """Returns the connections that one address may have. Kafka's default has no limit, but a broker has none for all
    connections either: here no address can take all of them."""
    given = limits.connections_per_ip
    return max(limits.connections // 2, 1) if given is None else given


def front_settings(
    s: Settings,
    new_id: Callable[[], str],
    upstream_tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    own_principal: str = "",
) -> FrontSettings:
    """Returns the front's settings. `own_principal`: the sidecars' principal, as far as it is known before a broker is
    asked."""
    return FrontSettings(
        node_id=s.node_id,
        broker=split(s.broker),
        limits=Limits(
            frame_bytes=s.limits.frame_bytes,
            group_frame_bytes=s.limits.group_frame_bytes,
            list_frame_bytes=s.limits.list_frame_bytes,
            in_flight=s.limits.in_flight,
            turn_requests=s.limits.turn_requests,
        ),
        managed=managed_by(s),
        managing=bool(s.groups.include),
        new_id=new_id,
        header_timeout_s=s.limits.header_timeout_ms / 1000,
        held_bytes=s.limits.held_bytes,
        all_unread_bytes=s.limits.all_unread_bytes,
        memory_bytes=s.limits.queued_bytes,
        large_requests=s.limits.large_requests,
        parked_large_requests=s.limits.parked_large_requests,
        door=DoorSettings(
            connections_max=s.limits.connections,
            per_ip_max=connections_per_ip(s.limits),
            per_ip_overrides=s.limits.connections_per_ip_overrides,
            idle_s=s.limits.idle_ms / 1000,
            first_s=s.limits.header_timeout_ms / 1000,
            repeat_s=s.log.repeat_ms / 1000,
            rate=s.limits.connection_rate,
            line=s.limits.accept_backlog,
        ),
        commit_lanes=s.offsets.commit_lanes,
        unproven_bytes=s.limits.unproven_bytes,
        remembered_bytes=s.limits.remembered_bytes,
        steady_replies=s.limits.steady_replies,
        access_keep_ms=s.authorisation_cache_ms,
        sizes=Sizes(s.limits.answer_bytes, s.limits.request_elements),
        hold_ms=s.takeover_hold_ms,
        silence_ms=s.limits.broker_silence_ms,
        modern_as_classic=s.compat.describe_modern_as_classic,
        share="share" in s.groups.kinds,
        streams="streams" in s.groups.kinds,
        upstream_tls=upstream_tls,
        upstream_host=split(s.broker)[0],
        own=own_names(s, own_principal),
        internal_topic=s.state.topic,
        own_principals=frozenset() if s.bootstrap else frozenset(filter(None, [own_principal])),
    )


def own_names(s: Settings, own_principal: str) -> OwnNames:
    """Returns the names that clients may not use. Where the sidecars come over the listener for clients, only their
    principal tells them from clients: without a principal, nothing can be kept from any client but the group's place in
    lists, which no sidecar asks for."""
    if not s.bootstrap and not own_principal:
        return OwnNames(unlisted=s.ownership.group)
    return OwnNames(s.ownership.group, s.state.topic, brokers_come=not s.bootstrap)


def own_cluster(s: Settings, client_id: str, security: Login = PLAINTEXT) -> Cluster:
    """Returns a cluster. With one listener for everything, this broker's advertised address would lead back through
    this process: `direct` overrides it."""
    direct = {} if s.bootstrap else {s.node_id: split(s.broker)}
    return Cluster(s.own_bootstrap(), client_id, direct, s.limits.response_bytes, security)
