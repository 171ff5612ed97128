"""A coordinator's sources of nondeterminism, which a simulation replaces. shared.py has the process's others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.coordinator.runtime.background import Background
from sidecar.coordinator.runtime.cluster_watch import NewTail
from sidecar.coordinator.statelog.tail import Tail


@dataclass(frozen=True)
class CoordinatorEnvironment:
    """Background threads and librdkafka's tail. The simulation has its own."""

    new_background: Callable[[int], Background] = Background
    new_tail: NewTail = Tail
