"""Regular expressions of clients: what they may cost."""

from __future__ import annotations

import itertools

import pytest
import re2

from sidecar.core.vocabulary import topic_regex as regex
from sidecar.core.vocabulary.errors import CoordinatorError
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
    validate("nothing-is-kept.*")
    resolve(["orders.*", "payments.*"], NAMES)
    assert len(purged) == 3, "together they would take more, and the allocator would keep the half of it"


def test_an_expression_is_compiled_once_whether_it_is_refused_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: forty members with new expressions held the loop for 70 ms; and each of a large group had the same one
    compiled again."""
    compiled: list[str] = []
    compile_ = re2.compile

    def counted(text: str, options: re2.Options) -> object:
        compiled.append(text)
        return compile_(text, options)

    monkeypatch.setattr(re2, "compile", counted)
    for _ in range(2):
        validate("once.*")
        with pytest.raises(CoordinatorError, match="missing closing"):
            validate("(once")
    assert compiled == ["once.*", "(once"]
    assert regex.is_validated("once.*") and regex.is_validated("(once") and not regex.is_validated("another.*")


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
