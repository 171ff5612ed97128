"""Kafka's own tests of group coordination, out of its test jars, with a sidecar in front of each broker.

Those that fail are in differences.toml, each with its reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.upstream.run import CLASS_S, CLASSES, REBALANCES, VIOLATIONS, run

DIFFERENCES_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


@dataclass(frozen=True)
class Difference:
    """`row`: the first cell of a row of differences.md; empty: the test needs a broker without any sidecar.
    `sometimes`: whether a test fails depends on what is done first, so both are right."""

    why: str
    tests: tuple[str, ...]
    row: str = ""
    sometimes: bool = False


def _read() -> list[Difference]:
    tables = tomllib.loads((Path(__file__).parent / "differences.toml").read_text())["difference"]
    return [Difference(**{**table, "tests": tuple(table["tests"])}) for table in tables]


DIFFERENCES = _read()


def _excused(name: str, sometimes: bool) -> set[str]:
    """Returns the tests of this class in the table, without the name of the class."""
    found = (test for d in DIFFERENCES if d.sometimes == sometimes for test in d.tests)
    return {test.removeprefix(f"{name}.") for test in found if test.startswith(f"{name}.")}


@pytest.mark.tier("nightly")
@pytest.mark.needs("javac", "mvn")
@pytest.mark.timeout(2 * CLASS_S)
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_of_kafkas_tests(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path)
    failing, either = _excused(name, sometimes=False), _excused(name, sometimes=True)
    unexpected = {test: why for test, why in result.failures.items() if test not in failing | either}
    assert unexpected == {}, f"these fail behind a sidecar; logs are in {tmp_path}"
    assert failing - result.failures.keys() == set(), "these are in differences.toml, and pass"
    assert either <= {*result.failures, *result.passed}, "these are in differences.toml, and not in the class"
    assert result.figures[VIOLATIONS] == 0
    assert result.figures[REBALANCES], "the groups were not the sidecars'"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: d.why)
def test_each_difference_has_a_row(difference: Difference) -> None:
    assert f"\n| {difference.row}" in DIFFERENCES_PAGE.read_text()
    assert all(test.partition(".")[0] in CLASSES for test in difference.tests)
