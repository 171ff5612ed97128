"""Memory of what is over comes back by itself: nothing large is left in a cycle for the collector, whose last
generation comes after days (sidecar/process/shared.py).

Connections end, partitions are lost, brokers hang, processes are suspended meanwhile. A process that was killed stays
with the universe until the end, and so does not count.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from sidecar.coordinator.statelog.term import Term
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.runtime.shard import Shard
from sidecar.core.share.group import ShareGroup
from sidecar.core.streams.group import StreamsGroup
from sidecar.front.session import Session
from sidecar.front.upstream import Upstream
from sidecar.proxy.connection import ClientConnection
from tests.harness.tiers import Seeds
from tests.whole.many import spread
from tests.whole.run import attempt
from tests.whole.universe import Universe, Work

LARGE = (
    *(Shard, ClassicGroup, ConsumerGroup, ShareGroup, StreamsGroup),
    *(Session, ClientConnection, Upstream, Term),
)
SEEDS = 60
FEW = 3
"""Objects of a kind that may be left in a seed: `asyncio.timeout` holds the frames of a request that it ends."""
LOOK = 5_000
"""The collector runs after so many timers."""


class Looks:
    """The collector in the midst of a run, and what it found."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._timers = 0

    def timer(self) -> None:
        self._timers += 1
        if self._timers % LOOK == 0:
            gc.collect()
            self.found += Counter(type(o).__name__ for o in gc.garbage if type(o) in LARGE)
            gc.garbage.clear()


def left(seed: int) -> tuple[int, Counter[str]]:
    """In a process of its own."""
    looks, plain = Looks(), Universe.at

    def at(self: Universe, ms: float, work: Work, *proc: object) -> object:
        looks.timer()
        return plain(self, ms, work, *proc)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Universe, "at", at)
        gc.collect()
        gc.freeze()
        gc.set_debug(gc.DEBUG_SAVEALL)
        problem = attempt(seed).problem
        gc.set_debug(0)
    assert not problem, problem
    return seed, looks.found


@pytest.mark.tier("test")
@pytest.mark.timeout(900)
def test_nothing_large_is_left_to_the_collector(seeds: Seeds) -> None:
    for seed, found in spread(left, seeds.of(SEEDS), 1, each=1):
        assert all(n <= FEW for n in found.values()), (seed, found)
