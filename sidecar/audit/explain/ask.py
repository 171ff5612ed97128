"""The questions: why is a group as it is, and what if?"""

from __future__ import annotations

from sidecar.audit.explain import classic, consumer
from sidecar.audit.explain.model import ExplainError, Explanation, Limits, Live
from sidecar.audit.explain.replay import Replayed
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.vocabulary.topics import TopicImage

LIMITS = Limits()


def explain(
    told: Replayed, image: TopicImage | None = None, limits: Limits = LIMITS, live: Live | None = None
) -> Explanation:
    """`image`: the topics as they are now; None: nobody knows. `live`: what the owner says. Raises ExplainError."""
    group = told.shard(image or TopicImage()).groups.get(told.group_id)
    if isinstance(group, ConsumerGroup):
        return consumer.explain(told, group, image, limits, live)
    if isinstance(group, ClassicGroup):
        return classic.explain(told, group, limits, live)
    raise ExplainError(
        f"The sidecars have no group {told.group_id}: it is the broker's own, or there is none.",
        "sidecar groups list shows all groups and where they are.",
    )
