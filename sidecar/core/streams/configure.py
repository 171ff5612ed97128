"""Configures a group's topology with the present topics, and raises the epoch when the result changes."""

from __future__ import annotations

from sidecar.core.modern.epochs import write_epoch
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import config_of
from sidecar.core.streams.group import NOT_VALIDATED, StreamsGroup
from sidecar.core.streams.partitions import ConfiguredTopology, configure
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.status_texts import incorrectly_partitioned
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.errors import CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.core.vocabulary.topics import TopicImage

Why = tuple[str, Reason]


def configured_with(
    group: StreamsGroup, topology: Topology, image: TopicImage, soft: StreamsSoft, max_tasks: int | None = None
) -> ConfiguredTopology:
    """Returns the configured topology. `topology`: the group's, or its next one. Raises STREAMS_INVALID_TOPOLOGY."""
    metadata_hash, known = group.hash_over(image, topology), soft.configured
    if known is not None and known[0] is topology and known[1] == metadata_hash:
        return known[2]
    by_name = image.by_name

    def partitions_of(topic: str) -> int | None:
        known_topic = by_name.get(topic)
        return None if known_topic is None else known_topic.partitions

    configured = configure(topology, partitions_of, max_tasks)
    soft.configured = (topology, metadata_hash, configured)
    return configured


def _configured(turn: Turn, group: StreamsGroup, topology: Topology) -> ConfiguredTopology:
    max_tasks = config_of(turn, group.group_id).max_tasks
    return configured_with(group, topology, turn.image, turn.soft_of(group.group_id), max_tasks)


def configured_now(turn: Turn, group: StreamsGroup) -> ConfiguredTopology:
    """Returns the configured topology of a group that has one. An invalid topology counts as not ready: the heartbeats
    of its members are refused with the error (step.py), and timers and runs go on."""
    assert group.topology is not None
    try:
        return _configured(turn, group, group.topology)
    except CoordinatorError as exc:
        return ConfiguredTopology(group.topology.epoch, status=incorrectly_partitioned(str(exc)))


def refresh(turn: Turn, group: StreamsGroup) -> None:
    """Raises the epoch if topics, readiness or settings require it, and not while the topology is invalid."""
    soft: StreamsSoft = turn.soft_of(group.group_id)
    if group.topology is None:
        return
    try:
        configured = _configured(turn, group, group.topology)
    except CoordinatorError:
        return
    why = changed(turn, group, configured)
    if why is not None:
        bump(turn, group, configured, *why)
    soft.metadata_due = False


def changed(turn: Turn, group: StreamsGroup, configured: ConfiguredTopology) -> Why | None:
    if group.hash_over(turn.image) != group.metadata_hash:
        return "topic metadata changed", Reason.TOPICS
    if _validated(configured) != group.validated_topology_epoch:
        return "the topology is ready" if configured.ready else "the topology is not ready", Reason.TOPICS
    if config_of(turn, group.group_id).assignment_configs() != group.assignment_configs:
        return "settings of the assignment changed", Reason.OPERATOR
    return None


def bump(
    turn: Turn, group: StreamsGroup, configured: ConfiguredTopology, why: str, reason: Reason, **more: int
) -> None:
    """Raises the group epoch. `more`: other fields of the group's record."""
    soft: StreamsSoft = turn.soft_of(group.group_id)
    if soft.endpoints_incomplete:
        soft.endpoints_incomplete = False
        more["endpoint_epoch"] = group.endpoint_epoch + 1
    record = group.record(
        why,
        epoch=group.epoch + 1,
        metadata_hash=group.hash_over(turn.image),
        validated_topology_epoch=_validated(configured),
        assignment_configs=config_of(turn, group.group_id).assignment_configs(),
        **more,
    )
    write_epoch(turn, group, record, why, reason)


def _validated(configured: ConfiguredTopology) -> int:
    return configured.epoch if configured.ready else NOT_VALIDATED
