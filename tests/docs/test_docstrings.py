"""A docstring of a constant or attribute stands right behind it. One that was left behind speaks of something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def stray_docstrings(tree: ast.AST) -> Iterator[int]:
    """The lines of docstrings in modules and classes with nothing before them that they could explain."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, here in pairwise(node.body):
                text = isinstance(here, ast.Expr) and isinstance(here.value, ast.Constant)
                if text and not isinstance(before, ast.Assign | ast.AnnAssign):
                    yield here.lineno


@pytest.mark.parametrize(
    ("source", "found"),
    [('"""Of the module."""\nA = 1\n"""Of A."""\n', []), ('A = 1\n"""Of A."""\n"""Of B."""\n', [3])],
)
def test_one_that_explains_nothing_is_found(source: str, found: list[int]) -> None:
    assert list(stray_docstrings(ast.parse(source))) == found


@pytest.mark.tier("test")
@pytest.mark.parametrize("folder", ["sidecar", "tests", "tools", "benchmarks"])
def test_none_is_left_behind(folder: str) -> None:
    files = [p for p in sorted((ROOT / folder).rglob("*.py")) if "generated" not in p.parts]
    assert files
    assert [f"{p.relative_to(ROOT)}:{n}" for p in files for n in stray_docstrings(ast.parse(p.read_text()))] == []
