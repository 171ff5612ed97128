"""Soft state of a consumer group, beside that of every group with epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.consumer.assignor_run import CachedLayout
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.turn import Turn


@dataclass(slots=True)
class ConsumerSoft(ModernSoft):
    layout: CachedLayout | None = None
    """The arrays of the last assignor run."""
    resolving: bool = False
    """Whether the group's regular expressions are being resolved."""
    matched_versions: dict[str, int] = field(default_factory=dict)
    """Regular expression -> `names_version` of the topics that it was last matched against. Each process counts anew,
    so an expression that is not here is due."""
    matched_ms: list[int] = field(default_factory=list)
    """Monotonic times of the last matches, `regex_matches` at most."""

    def joins_wait(self) -> bool:
        return self.flight is not None or self.resolving

    def needs_connection(self, turn: Turn) -> bool:
        """Whether a resolution under way needs the connection of its request: the broker's authorizer checks the
        matched topics there."""
        return self.resolving and turn.ports.asks_access()
