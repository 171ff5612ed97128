"""What a coordinator knows of a consumer group beside what it knows of every group with epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.consumer.assignor_run import KnownLayout
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.turn import Turn


@dataclass(slots=True)
class ConsumerSoft(ModernSoft):
    layout: KnownLayout | None = None
    """The arrays of the last assignor run."""
    resolving: bool = False
    """The group's regular expressions are being resolved."""
    matched_ms: list[int] = field(default_factory=list)
    """Monotonic: when they were last, `regex_matches` times at most."""

    def joins_wait(self) -> bool:
        return self.flight is not None or self.resolving

    def needs_connection(self, turn: Turn) -> bool:
        """What an expression matched is shown to the broker's authorizer on the connection of who asked."""
        return self.resolving and turn.ports.asks_access()
