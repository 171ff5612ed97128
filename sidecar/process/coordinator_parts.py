"""Turns the process's settings into those of the coordinator's parts."""

from __future__ import annotations

from sidecar.coordinator.clock import now
from sidecar.coordinator.inspect.lag_exporter import ExporterSettings
from sidecar.coordinator.membership.peer_links import PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.placeholder.placeholders import PlaceholderSettings
from sidecar.coordinator.runtime.cluster_watch import ClusterWatchSettings
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.coordinator.statelog.topic_watch import LOOKS
from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.vocabulary.group_patterns import Patterns
from sidecar.kafka.cluster import Address
from sidecar.kafka.resolver import joined
from sidecar.link.ports import Logger
from sidecar.process.settings import Settings
from sidecar.process.version import package_version

OTHERS_START_MS = 60_000
"""Time in which the other sidecars start again once they have noticed the loss of the state topic: seconds would do."""


def cluster_watch_settings(s: Settings, client_id: str, rules: Rules) -> ClusterWatchSettings:
    o = s.ownership
    return ClusterWatchSettings(
        broker=s.broker,
        tail_bootstrap=joined(s.own_bootstrap()),
        tail_client_id=client_id + "-tail",
        same_listener=not s.bootstrap,
        metadata_refresh_s=s.metadata_refresh_ms / 1000,
        settings_refresh_s=s.settings_refresh_ms / 1000,
        broker_gone_s=o.broker_gone_ms / 1000,
        follow_leader_s=o.follow_leader_ms / 1000,
        tail_wait_s=o.tail_wait_ms / 1000,
        ownership=OwnershipSettings(
            o.group,
            o.session_timeout_ms,
            o.heartbeat_ms,
            PeerSettings(o.peer_links, o.peer_ping_ms / 1000, o.peer_silence_ms / 1000),
            rules.own_patterns(),
            o.proof_ms,
            s.state.topic,
            s.link is None,
            o.rebalance_wait_ms,
            s.groups.kinds,
            package_version(),
        ),
    )


def begin_quarantine(s: Settings, log: Logger) -> Quarantine:
    """Returns a quarantine until the other sidecars have noticed the loss, too, after LOOKS listings of topics, and
    have started."""
    log.warning("nobody joins a group at first, so that former members hear of it", ms=s.state.quarantine_ms)
    return Quarantine(s.state.quarantine_ms, now().mono_ms + OTHERS_START_MS + LOOKS * s.metadata_refresh_ms)


def coordinator_settings(
    s: Settings, address: Address, quarantine: Quarantine, cluster_id: str = ""
) -> CoordinatorSettings:
    service = ServiceSettings(
        s.takeover_hold_ms, s.limits.parked_replies, s.state.fence_interval_ms, fence_spread=s.state.fence_spread
    )
    return CoordinatorSettings(
        s.state.topic,
        s.node_id,
        address,
        s.state.write_timeout_ms / 1000,
        s.state.claims_kept,
        service,
        PlaceholderSettings(
            s.offsets.placeholder_session_timeout_ms,
            s.offsets.placeholder_wait_ms,
            s.offsets.placeholder_first_joins,
            s.limits.parked_replies,
        ),
        lease_ms=s.ownership.proof_ms,
        batch_bytes=s.state.max_message_bytes // 2,
        load_slice_s=s.takeover_slice_ms / 1000,
        turns=s.log.turns,
        look_s=s.metadata_look_ms / 1000,
        quarantine=quarantine,
        limits=MemberLimits(
            s.limits.pending_members,
            s.limits.pending_members_per_connection,
            s.limits.protocols,
            s.limits.group_bytes,
            s.limits.members_bytes,
        ),
        cluster_id=cluster_id or None,
    )


def exporter_settings(s: Settings) -> ExporterSettings:
    e = s.exporter
    named = Patterns(e.include, e.exclude, [s.ownership.group])
    return ExporterSettings(s.node_id, e.interval_ms / 1000, e.series, named, e.topics)
