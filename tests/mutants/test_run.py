"""The runner's rules: what counts as found, what it keeps, and what random mutants are. No bug is planted here."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.mutants.random import mutants
from tests.mutants.run import SURVIVED, Result, keep, shares, table
from tests.mutants.slot import Ended, Slot
from tests.mutants.suites import Clean, command_of, failed_test
from tests.mutants.table import ROOT


class CleanTree:
    """A slot without a bug, in which commands end like this."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self.asked = 0

    def tests(self, args: Sequence[str], limit_s: float) -> Ended:
        self.asked += 1
        return self._ended


FAILED = "F.\nFAILED tests/a/test_b.py::test_c - assert 1 == 2\n1 failed in 0.1s"


@pytest.mark.parametrize(
    ("ended", "clean", "found", "asked"),
    [
        (Ended(0, 1, "."), Ended(0, 1, "."), "", 0),
        (Ended(1, 1, FAILED), Ended(0, 1, "."), "tests/a/test_b.py::test_c", 0),
        (Ended(2, 1, "ERROR tests/a/test_b.py\n"), Ended(0, 1, "."), "tests/a/test_b.py", 1),
        (Ended(2, 1, "ERROR tests/a/test_b.py\n"), Ended(2, 1, "."), "", 1),
        (Ended(None, 90, "."), Ended(0, 29, "."), "hangs", 1),
        (Ended(None, 90, "."), Ended(0, 31, "."), "", 1),
        (Ended(None, 90, "."), Ended(None, 90, "."), "", 1),
    ],
)
def test_what_counts_as_found(ended: Ended, clean: Ended, found: str, asked: int) -> None:
    tree = CleanTree(clean)
    assert Clean(cast(Slot, tree)).finding_test(ended, ["pytest", "tests/a"], 90) == found
    assert tree.asked == asked
    assert failed_test("") == "nothing said"


def test_commands_are_pytest_or_a_module() -> None:
    assert command_of("tests/a tests/b")[-2:] == ["tests/a", "tests/b"]
    assert command_of("-m tests.sim.run --seeds 9")[1:] == ["-m", "tests.sim.run", "--seeds", "9"]


def test_results_of_rooms_are_kept_from_run_to_run(tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    one = Result("one", "a", "leak", "quick", "tests/a", True, 1.0)
    two = Result("two", "b", "leak", SURVIVED, "", False, 1.0)
    assert keep([one], path, ["one", "two"]) == [one]
    assert keep([two], path, ["one", "two"]) == [one, two]
    assert keep([], path, ["two"]) == [two], "a bug that is in the table no more"
    assert shares([one, two]) == {"quick": 50.0, "test": 50.0, "all": 50.0}
    assert table([one, two]).splitlines()[-1].split() == ["all", "rooms", "2", "1", "0", "0", "1", "50.0%"]


@pytest.mark.parametrize("file", ["sidecar/core/runtime/timers.py", "sidecar/front/steady.py", "sidecar/state/fold.py"])
def test_a_random_mutant_is_one_small_change_that_compiles(file: str) -> None:
    before = (ROOT / file).read_text()
    every = list(mutants(ROOT / file))
    assert len(every) > 20 and len({m.what for m in every}) >= 4
    for mutant in every:
        assert mutant.text != before and ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(before))
        changed = sum(a != b for a, b in zip(before.splitlines(), mutant.text.splitlines(), strict=False))
        assert changed == 1 or len(before.splitlines()) != len(mutant.text.splitlines())
