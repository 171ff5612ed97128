"""A broker counts as silent or not, on times that a test makes up: nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sidecar.front.failure_detector import FailureDetector

LIMIT_MS, LOOK_MS = 2_000, 125


@dataclass
class Timeline:
    """A broker that answers probes after `probe_ms` (None: never), and clients' requests whenever `heard` says."""

    probe_ms: int | None = None
    heard: Callable[[int], bool] = lambda at_ms: False
    owes: bool = True
    fresh_ms: int | None = None
    now_ms: int = 50_000
    probes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.detector = FailureDetector(LIMIT_MS)
        self.detector.begin(self.now_ms)
        self._sent_ms: int | None = None

    def go(self, ms: int) -> list[tuple[int, bool, bool]]:
        """Lets this time pass. Returns the detector's verdicts."""
        began_ms = self.now_ms
        told: list[tuple[int, bool, bool]] = []
        d = self.detector
        while self.now_ms < began_ms + ms:
            self.now_ms += LOOK_MS
            d.received = d.received or self.heard(self.now_ms - began_ms)
            if self._sent_ms is not None and self.probe_ms is not None and self.now_ms - self._sent_ms >= self.probe_ms:
                self._sent_ms = self.now_ms if d.answered(self.now_ms) else None
            if d.look(self.now_ms, self.owes, self.fresh_ms):
                self.probes.append(self.now_ms - began_ms)
                self._sent_ms = self.now_ms
            now = (d.silent, d.silent_to_all)
            if not told or told[-1][1:] != now:
                told.append((self.now_ms - began_ms, *now))
        return told


def test_a_broker_that_answers_nothing_is_silent_after_the_limit() -> None:
    t = Timeline()
    assert t.go(5_000) == [(125, False, False), (2_000, True, True)]
    assert t.probes == [1_000], "one, as more would fill the queue of a broker that accepts nothing"


def test_a_broker_that_owes_nothing_is_not_even_asked() -> None:
    t = Timeline(owes=False)
    t.go(60_000)
    assert not t.detector.silent and t.probes == []


def test_a_long_poll_is_no_silence() -> None:
    t = Timeline(probe_ms=0)
    assert t.go(300_000) == [(125, False, False)]
    assert len(t.probes) < 300, "about one a second"


def test_a_slow_broker_that_answers_probes_is_not_silent() -> None:
    t = Timeline(probe_ms=875, heard=lambda at_ms: at_ms % 10_000 == 0)
    assert t.go(60_000) == [(125, False, False)]


def test_a_broker_that_answers_each_second_is_never_asked() -> None:
    t = Timeline(heard=lambda at_ms: at_ms % 750 == 0)
    t.go(60_000)
    assert t.probes == []


def test_a_new_connection_without_an_answer_counts_though_others_are_answered() -> None:
    """The acceptor hangs, or its queue is full."""
    t = Timeline(heard=lambda at_ms: True, fresh_ms=50_000)
    assert t.go(10_000) == [(125, False, False), (2_000, True, False)], "and old connections go on"


@pytest.mark.parametrize("late_ms", [1_250, 10_000])
def test_only_an_answer_in_time_ends_the_silence(late_ms: int) -> None:
    """A broker that takes ten seconds for each answer is as good as silent to whoever waits no longer."""
    t = Timeline(probe_ms=late_ms)
    assert [told[1:] for told in t.go(60_000)] == [(False, False), (True, True)]
    t.probe_ms = 100
    assert t.go(1_000)[-1][1:] == (False, False)


def test_a_late_answer_is_followed_by_another_probe_at_once() -> None:
    d = FailureDetector(LIMIT_MS)
    d.begin(0)
    assert d.look(1_000, True, None) and not d.look(2_000, True, None) and d.silent
    assert d.answered(9_000) and d.silent, "it runs again"
    assert not d.answered(9_010) and not d.silent, "and answers again"


def test_what_a_refused_probe_says_is_that_there_is_no_broker() -> None:
    d = FailureDetector(LIMIT_MS)
    d.begin(0)
    d.look(1_000, True, None)
    d.look(2_000, True, None)
    d.gone(2_500)
    assert not d.silent and not d.silent_to_all


def test_the_time_in_which_the_sidecar_stood_still_does_not_count() -> None:
    d = FailureDetector(LIMIT_MS)
    d.begin(0)
    assert d.look(1_000, True, None)
    d.stood_still(30_000)
    assert not d.look(31_125, True, None) and not d.silent, "the probe's answer may not be read yet"
    d.look(32_000, True, None)
    assert d.silent
