"""Creates the state topic as a sidecar with default settings does, for commands and tests."""

from __future__ import annotations

from sidecar.coordinator.statelog.startup import create_state_topic, topic_configs
from sidecar.kafka.cluster import Cluster
from sidecar.process.sections import State


async def made_by_default(cluster: Cluster, topic: str, partitions: int) -> int:
    """Returns the error code, which is TOPIC_ALREADY_EXISTS if it was there. Raises ConnectionLost, TimeoutError,
    WireError."""
    view = await cluster.refresh()
    settings = State.model_validate({})
    replicas = settings.replicas or min(3, len(view.brokers))
    configs = topic_configs(replicas, settings.min_compaction_lag_ms, settings.max_message_bytes)
    return await create_state_topic(cluster, topic, partitions, replicas, configs)
