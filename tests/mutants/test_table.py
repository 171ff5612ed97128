"""The table of planted bugs can be planted: each text is there once, each test exists, each id is one bug's."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

from tests.mutants.table import ROOT, all_planted


def test_every_bug_can_be_planted() -> None:
    problems = [problem for bug in all_planted() if (problem := bug.problem())]
    assert not problems, "\n".join(problems)


def test_every_bug_has_a_name_of_its_own() -> None:
    twice = [name for name, n in Counter(bug.id for bug in all_planted()).items() if n > 1]
    assert not twice


def test_every_bug_leaves_python_that_compiles() -> None:
    for bug in all_planted():
        if bug.file.endswith(".py"):
            ast.parse(bug.plant((ROOT / bug.file).read_text()), bug.file)


def test_every_expected_test_is_there() -> None:
    @cache
    def names(file: str) -> set[str]:
        tree = ast.parse((ROOT / file).read_text())
        return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    missing = [
        f"{bug.id}: {test}"
        for bug in all_planted()
        for test in bug.by.split()
        if "::" in test and test.partition("::")[2].partition("[")[0] not in names(test.partition("::")[0])
    ]
    assert not missing, "\n".join(missing)


def test_there_are_enough_bugs_in_every_room() -> None:
    rooms = Counter(bug.room for bug in all_planted())
    assert sum(rooms.values()) >= 120
    assert min(rooms.values()) >= 3, rooms
