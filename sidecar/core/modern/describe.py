"""Parts that the descriptions of all groups with partitions share."""

from __future__ import annotations

from sidecar.core.modern.events import TopicPartitions
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.topics import TopicImage


def named(parts: Partitions, image: TopicImage) -> tuple[TopicPartitions, ...]:
    """Returns these partitions with the names of their topics, without topics that do not exist."""
    return tuple((t, image.by_id[t].name, ps) for t, ps in parts.items() if t in image.by_id)
