"""Where a coordinator meets what cannot be replayed. shared.py has the environment of the rest of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.coordinator.runtime.background import Background
from sidecar.coordinator.runtime.cluster_watch import NewTail
from sidecar.coordinator.statelog.tail import Tail


@dataclass(frozen=True)
class CoordinatorEnvironment:
    """Threads and librdkafka. The simulation has its own."""

    new_background: Callable[[int], Background] = Background
    new_tail: NewTail = Tail
