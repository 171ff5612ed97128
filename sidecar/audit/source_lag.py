"""How far the lake is behind the topic, and which history is about to be lost.

Compaction leaves a record alone until it is `min.compaction.lag.ms` old. A record that the lake does not have by then
may go, with nothing but a gap in the revisions to tell of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

COMPACTION_LAG = "min.compaction.lag.ms"
WARN_AT = 0.5
"""Share of the compaction lag at which there is still time to do something."""


class Topic(Protocol):
    def bounds(self) -> dict[int, tuple[int, int]]: ...
    def setting(self, name: str) -> str | None: ...
    def first_times(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]: ...


@dataclass(frozen=True)
class Lag:
    """`behind`: offsets that are not in the lake; `gone`: offsets that were removed before they were; `age_ms`: of the
    oldest record that is not in the lake, None if there is none; `allowed_ms`: the topic's compaction lag."""

    partition: int
    behind: int
    gone: int
    age_ms: int | None
    allowed_ms: int

    @property
    def lost_soon(self) -> bool:
        return self.gone > 0 or (self.age_ms is not None and self.age_ms >= self.allowed_ms * WARN_AT)


def lags(topic: Topic, position: Mapping[int, int], now_ms: int | None = None) -> list[Lag]:
    """Of each partition. `position`: next offset that the lake needs; a partition that is missing has not begun."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    allowed = int(topic.setting(COMPACTION_LAG) or 0)
    bounds = topic.bounds()
    ahead = {p: (max(low, position.get(p, low)), high) for p, (low, high) in bounds.items()}
    first = topic.first_times({p: (at, high) for p, (at, high) in ahead.items() if at < high})
    found = []
    for p, (low, high) in sorted(bounds.items()):
        age = max(0, now - first[p]) if p in first else None
        found.append(Lag(p, max(0, high - ahead[p][0]), max(0, low - position.get(p, low)), age, allowed))
    return found
