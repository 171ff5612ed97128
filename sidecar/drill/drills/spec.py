"""The interface of drills: a fault, and its healing. Everything else is the same for all drills."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sidecar.drill.drills.ground import Ground


@dataclass(frozen=True)
class Mark:
    """The moment of a fault or another step, and its description."""

    at_s: float
    """Monotonic time, in seconds."""
    at_ms: int
    """Unix time in ms, as in the journals of clients."""
    what: str

    @staticmethod
    def now(what: str) -> Mark:
        return Mark(time.monotonic(), int(time.time() * 1000), what)


@dataclass
class Finding:
    """A finding of the drill itself, beside the judge's. `ok`: whether the product did what it must."""

    what: str
    found: object
    ok: bool


@dataclass
class Drill:
    """A drill. Subclasses override `fault` and `heal`, and set the fields to their expectations."""

    options: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    name = ""
    stage = "plain"
    """The stage, which is the kind of cluster; playing.py lists them."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of the groups under test; (): consumer and classic."""
    since: ClassVar[tuple[int, ...]] = ()
    """The first Kafka whose brokers support the drill."""
    needs_checkout = False
    """Whether the drill needs this project's git history."""
    beside_kafka = False
    """Whether groups that Kafka coordinates take part, for faults of brokers."""
    everything_stops = False
    """Whether the fault also takes the broker that leads the bystanders' groups."""
    holds_s = 0.0
    """Least time from the fault until it is healed."""
    back_before_heal = True
    """Whether the groups must be served again before the fault is healed."""
    patience_s = 90.0
    """Seconds in which all groups must be served again; else the drill fails."""

    def find(self, what: str, found: object, ok: bool) -> None:
        """Note a finding of the drill itself. It replaces an earlier good one of the same name."""
        self.findings[:] = [f for f in self.findings if f.what != what or not f.ok]
        self.findings.append(Finding(what, found, ok))

    def start(self, ground: Ground) -> None:
        """Start the cluster, if this drill is the first one on it."""
        ground.start_cluster()

    def prepare(self, ground: Ground, i: int) -> None:
        """Called before round `i` (from 0), when everything runs."""

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        """Make the fault. Return a mark for each fault, taken just before it; the worst one counts for the times."""
        raise NotImplementedError

    def heal(self, ground: Ground, i: int) -> None:
        """Undo the fault, and wait until all brokers and sidecars are there again."""
        raise NotImplementedError
