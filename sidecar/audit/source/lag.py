"""Lag of the lake behind the topic, and history that is about to be lost.

Compaction keeps a record until it is `min.compaction.lag.ms` old. A record that the lake does not have by then may be
removed; only a gap in the revisions shows it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.audit.source.kafka import KafkaSource

COMPACTION_LAG = "min.compaction.lag.ms"
WARN_AT = 0.5
"""Share of the compaction lag at which an alert still leaves time to act."""


@dataclass(frozen=True)
class Lag:
    """Lag of a state partition. `behind`: offsets that are not in the lake; `lost`: offsets removed before they were
    read; `age_ms`: age of the oldest record that is not in the lake, None if there is none; `allowed_ms`: the topic's
    compaction lag."""

    partition: int
    behind: int
    lost: int
    age_ms: int | None
    allowed_ms: int

    @property
    def lost_soon(self) -> bool:
        return self.lost > 0 or (self.age_ms is not None and self.age_ms >= self.allowed_ms * WARN_AT)


def lags(topic: KafkaSource, position: Mapping[int, int], now_ms: int | None = None) -> list[Lag]:
    """Returns the lag of each partition. `position`: next offset that the lake needs; a partition that is missing has
    not begun."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    bounds = topic.bounds()  # raises NoTopic
    allowed = int(topic.setting(COMPACTION_LAG) or 0)
    ahead = {p: (max(low, position.get(p, low)), high) for p, (low, high) in bounds.items()}
    first = topic.first_times({p: (at, high) for p, (at, high) in ahead.items() if at < high})
    measured = []
    for p, (low, high) in sorted(bounds.items()):
        age = max(0, now - first[p]) if p in first else None
        measured.append(Lag(p, max(0, high - ahead[p][0]), max(0, low - position.get(p, low)), age, allowed))
    return measured
