"""What a drill is: a fault, and how it heals. Everything else is the same for all drills."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sidecar.drill.drills.ground import Ground


@dataclass(frozen=True)
class Mark:
    """A moment at which something was done to the cluster."""

    at_s: float
    """Monotonic."""
    at_ms: int
    """Wall clock, as in the journals of clients."""
    what: str

    @staticmethod
    def now(what: str) -> Mark:
        return Mark(time.monotonic(), int(time.time() * 1000), what)


@dataclass
class Finding:
    """What a drill itself looked for, beside the judge: `ok` is False where the product did not do what it must."""

    what: str
    found: object
    ok: bool


@dataclass
class Drill:
    """Subclasses override `fault` and `heal`, and say by the fields what is to be expected."""

    options: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    name = ""
    stage = "plain"
    """What cluster it is played on; playing.py lists them."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Of the groups under test; (): consumer and classic."""
    since: ClassVar[tuple[int, ...]] = ()
    """The first Kafka whose brokers have what it needs."""
    needs_checkout = False
    """It takes something from this project's git history."""
    beside_kafka = False
    """Groups that Kafka coordinates take part: for faults that concern brokers."""
    everything_stops = False
    """No broker is left that leads the groups of bystanders."""
    holds_s = 0.0
    """So long at least from the fault until it is healed."""
    back_before_heal = True
    """The groups are served again before the fault is healed."""
    patience_s = 90.0
    """A group that is not served again by then fails the drill."""

    def find(self, what: str, found: object, ok: bool) -> None:
        """Note something that the drill looked at itself. What is found as well as before is not listed again."""
        self.findings[:] = [f for f in self.findings if f.what != what or not f.ok]
        self.findings.append(Finding(what, found, ok))

    def start(self, ground: Ground) -> None:
        """Start the cluster, if this drill is the first one on it."""
        ground.start_cluster()

    def prepare(self, ground: Ground, i: int) -> None:
        """Called before round `i` (from 0), when everything runs."""

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        """Do it. Returns a mark for each fault, taken just before it; the times of a round are those of its worst."""
        raise NotImplementedError

    def heal(self, ground: Ground, i: int) -> None:
        """Undo it, and wait until all brokers and sidecars are there again."""
        raise NotImplementedError
