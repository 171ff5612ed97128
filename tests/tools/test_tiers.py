"""The tests that a command runs (tests/harness/tiers.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tiers import over, tier_of


@pytest.mark.tier("test")
@pytest.mark.parametrize("tier", ["test", pytest.param("quick", marks=pytest.mark.tier("quick"))])
def test_the_mark_of_a_case_is_nearer_than_that_of_its_function(request: pytest.FixtureRequest, tier: str) -> None:
    assert tier_of(request.node) == tier


SUITE = """
import pytest

def world(name):
    @pytest.fixture(scope="session", name=name)
    def made():
        print("begins", name)
        yield
        print("ends", name)
    return made

kafka, trio_world, spark = world("kafka"), world("trio_world"), world("spark")

@pytest.fixture(scope="session")
def topic(kafka):
    yield
    print("ends topic")

def test_a(kafka): print("a")
def test_b(): print("b")
def test_c(trio_world): print("c")
def test_d(topic): print("d")
def test_e(trio_world): print("e")
def test_f(spark): print("f")
def test_g(): print("g")
"""


@pytest.mark.tier("test")  # it runs pytest
def test_tests_of_one_world_are_neighbours_and_the_last_one_ends_it(tmp_path: Path, root: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    plugins = ("-p", "tests.harness.tiers", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-m", "pytest", "-qs", "-c", os.devnull, *plugins, str(tmp_path)]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    told = [line.lstrip(".") for line in out.splitlines()[:-1] if line.lstrip(".")]
    kafka = ["begins kafka", "a", "d", "begins spark", "f", "ends topic", "ends kafka", "ends spark"]
    trio = ["begins trio_world", "c", "e", "ends trio_world"]
    assert told == [*kafka, *trio, "b", "g"], out


def test_a_world_goes_on_for_the_next_one_of_its_tests() -> None:
    assert over("kafka", "kafka") == over("", "kafka") == over("tests/x.py", "") == []
