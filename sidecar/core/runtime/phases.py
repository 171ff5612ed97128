"""The phases of a partition in one sidecar, and the signals between them. lifecycle.py has the picture."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    ELSEWHERE = "elsewhere"
    FENCING = "fencing"
    CLAIMING = "claiming"
    REPLAYING = "replaying"
    SERVING = "serving"
    PAUSING = "pausing"


P = Phase
TRANSITIONS: Mapping[Phase, Mapping[str, Phase]] = {
    P.ELSEWHERE: {"assigned": P.FENCING},
    P.FENCING: {"fenced": P.CLAIMING, "failed": P.PAUSING, "resigned": P.ELSEWHERE},
    P.CLAIMING: {"claimed": P.REPLAYING, "failed": P.PAUSING, "resigned": P.ELSEWHERE},
    P.REPLAYING: {"replayed": P.SERVING, "failed": P.PAUSING, "resigned": P.ELSEWHERE},
    P.SERVING: {"failed": P.PAUSING, "resigned": P.ELSEWHERE},
    P.PAUSING: {"rested": P.FENCING, "resigned": P.ELSEWHERE},
}
