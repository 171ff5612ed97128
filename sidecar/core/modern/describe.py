"""What the descriptions of groups of all kinds with partitions tell alike."""

from __future__ import annotations

from sidecar.core.modern.events import TopicPartitions
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.topics import TopicImage


def named(parts: Partitions, image: TopicImage) -> tuple[TopicPartitions, ...]:
    """Those of topics that exist."""
    return tuple((t, image.by_id[t].name, ps) for t, ps in parts.items() if t in image.by_id)
