"""The judge of silence finds an alert that fires without its fault."""

from __future__ import annotations

from typing import Any, cast

from tests.see.ground import Fault, Ground, spans

STARTED = 1_000.0


class Recorded:
    """The alerts that a Prometheus has kept."""

    def __init__(self, *fired: tuple[str, float]) -> None:
        self.kept = [(alert, STARTED + s) for alert, s in fired]

    def fired(self, since_s: float, until_s: float) -> list[tuple[str, float]]:
        return [(alert, at) for alert, at in self.kept if since_s <= at <= until_s]


def noise(*fired: tuple[str, float]) -> list[str]:
    """With a fault from 10 to 20 s that raises A, and the alerts of a fault that is in the table of tolerated ones."""
    prometheus = cast(Any, Recorded(*fired))
    faults = [Fault("x", frozenset("A"), prometheus, STARTED + 10, STARTED + 20)]
    faults.append(Fault("no broker", frozenset("B"), prometheus, STARTED + 40, STARTED + 50))
    found = Ground(cast(Any, None), prometheus, STARTED, faults).noise()
    return found[: -len(faults)]


def test_seconds_that_follow_each_other_are_one_time() -> None:
    assert spans([("A", 1), ("B", 2), ("A", 2), ("A", 3), ("A", 9)]) == [("A", 1, 3), ("A", 9, 9), ("B", 2, 2)]


def test_the_alert_of_a_fault_is_no_noise_however_long_it_stays() -> None:
    assert noise(*(("A", float(s)) for s in range(12, 33))) == []
    assert noise(("A", 25.0)) == [], "it may begin a little later"


def test_what_fires_without_its_fault_is_noise() -> None:
    assert noise(("A", 5.0)) == ["A from 5 to 5 s"]
    assert noise(("A", 30.0), ("A", 31.0)) == ["A from 30 to 31 s"]
    assert noise(("B", 15.0)) == ["B from 15 to 15 s"]


def test_what_a_fault_may_raise_too_is_tolerated_in_its_time_only() -> None:
    assert noise(("SidecarDown", 45.0)) == []
    assert noise(("SidecarDown", 15.0)) == ["SidecarDown from 15 to 15 s"]
    assert noise(("SidecarLoopLag", 45.0)) == ["SidecarLoopLag from 45 to 45 s"]
