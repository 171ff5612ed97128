"""The coordinator's metrics: those that follow its state, and those that the core counts and measures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sidecar.core.classic.config import CLASSIC
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.runtime.effects import Count, Observe
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.service import Service
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.link.ports import Figures


def show(figures: Figures, service: Service, waiting: Callable[[], int]) -> None:
    """Sets up the metrics that follow the state. `waiting()`: requests that wait before the core."""
    owners = service.owners
    figures("parked").set_function(lambda: service.tally.open + waiting())
    figures("unreadable_groups").set_function(lambda: sum(len(o.loader.unreadable) for o in owners))
    figures("owned").set_function(lambda: len(service.serving()))
    figures("held_bytes").set_function(service.held_bytes)
    for owner in owners:
        serves = partial(lambda o: float(o.phase is Phase.SERVING), owner)
        figures("partition_owned", str(owner.partition)).set_function(serves)
    # A counter that is not there before its first step hides that step from rates.
    for kind in (CLASSIC, CONSUMER):
        figures("settle_seconds", kind)
        for reason in Reason:
            figures("rebalances", kind, reason)
    for why in ("fenced", "write lost"):
        figures("fenced", why)
    for phase in Phase:
        figures("partitions", phase).set_function(partial(lambda p: sum(o.phase is p for o in owners), phase))


def count(figures: Figures, counted: Count) -> None:
    figures(counted.metric, *counted.labels).inc(counted.by)


def observe(figures: Figures, observed: Observe) -> None:
    figures(observed.metric, *observed.labels).observe(observed.ms / 1000)
