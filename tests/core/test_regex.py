"""Regular expressions of clients: what they may cost."""

from __future__ import annotations

import itertools

import pytest
import re2

from sidecar.core.vocabulary import topic_regex as regex
from sidecar.core.vocabulary.topic_regex import resolve, validate

NAMES = [f"orders-{n}" for n in range(100)]


def test_parentheses_cost_nothing() -> None:
    """Symptom: `(.?){1000}` took 30 ms for each name of 240 characters; without captures it takes a hundredth."""
    assert regex._QUIET.never_capture
    assert re2.compile("(orders)-(.*)", regex._QUIET).groups == 0
    assert resolve(["(orders|x)-(1|2)"], NAMES) == {"(orders|x)-(1|2)": ("orders-1", "orders-2")}


def test_nothing_is_kept_of_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 keeps the last 128 that were compiled, each with megabytes."""
    purged = []
    monkeypatch.setattr(re2, "purge", lambda: purged.append(1))
    validate("orders.*")
    resolve(["orders.*"], NAMES)
    assert len(purged) == 2


def test_a_run_ends_in_time_and_one_expression_does_not_take_it_all() -> None:
    seconds = itertools.count()

    def cpu_s() -> float:
        return next(seconds)

    found = resolve(["a", "b", "orders-1"], NAMES, 100, cpu_s)
    assert found == {} and next(seconds) < 100, "each has had a quarter"
    found = resolve(["orders-1", "orders-2"], NAMES[:3], 100, cpu_s)
    assert found == {"orders-1": ("orders-1",), "orders-2": ("orders-2",)}
    found = resolve([f"{n}" for n in range(40)], NAMES[:3], 60, cpu_s)
    assert 0 < len(found) < 40
