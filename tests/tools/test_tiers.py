"""The tests that a command runs (tests/harness/tiers.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.harness.tiers import over, tier_of

PLUGINS = ("-p", "tests.harness.tiers", "-p", "no:cacheprovider", "-p", "no:xdist")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-c", os.devnull, *PLUGINS)


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
    command = [*PYTEST, "-s", str(tmp_path)]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    told = [line.lstrip(".") for line in out.splitlines()[:-1] if line.lstrip(".")]
    kafka = ["begins kafka", "a", "d", "begins spark", "f", "ends topic", "ends kafka", "ends spark"]
    trio = ["begins trio_world", "c", "e", "ends trio_world"]
    assert told == [*kafka, *trio, "b", "g"], out


SKIPS = {
    "by a mark": "import pytest\n@pytest.mark.skip\ndef test_a(): ...\n",
    "by its program": "import pytest\n@pytest.mark.needs('no-such-program')\ndef test_a(): ...\n",
    "in its body": "import pytest\ndef test_a(): pytest.skip()\n",
    "in a fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip()\ndef test_a(f): ...\n",
    "with its file": "import pytest\npytest.importorskip('no_such_module')\ndef test_a(): ...\n",
}


@pytest.mark.tier("test")  # it runs pytest
@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skip_is_a_failure_in_late_tiers(source: str, tmp_path: Path, root: Path) -> None:
    """Symptom: a file that skipped itself was passed over in every tier."""
    (tmp_path / "test_suite.py").write_text(source)
    command = [*PYTEST, "-s", str(tmp_path)]
    ran = partial(subprocess.run, cwd=root, capture_output=True, text=True, check=False)
    codes = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert ran([*command, "--tier", "test"]).returncode in codes
    strict = ran([*command, "--tier", "all"])
    assert strict.returncode not in codes and "nothing may be skipped in this tier" in strict.stdout


DRAWN = """
import pytest

@pytest.mark.tier("all")
@pytest.mark.drawn(0.5)
@pytest.mark.parametrize("n", range(40))
def test_a(n): ...
"""


@pytest.mark.tier("test")  # it runs pytest
def test_each_run_draws_other_cases_and_the_night_plays_all(tmp_path: Path, root: Path) -> None:
    (tmp_path / "test_suite.py").write_text(DRAWN)
    command = [*PYTEST, "--collect-only", str(tmp_path)]

    def played(*more: str, seed: int = 1) -> set[str]:
        env = {**os.environ, "FIRST_SEED": str(seed)}
        out = subprocess.run([*command, *more], cwd=root, capture_output=True, text=True, check=False, env=env).stdout
        return {line for line in out.splitlines() if "::" in line}

    first, other = played("--only-tier", "all"), played("--only-tier", "all", seed=2)
    assert 10 < len(first) < 30 and first != other
    assert played("--tier", "all") == first
    assert not played("--tier", "test")
    assert len(played("--only-tier", "nightly")) == len(played("--tier", "nightly")) == 40


def test_a_world_goes_on_for_the_next_one_of_its_tests() -> None:
    assert over("kafka", "kafka") == over("", "kafka") == over("tests/x.py", "") == []
