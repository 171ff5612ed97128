"""The tables at the end of docs/design/architecture.md name what is there: functions, tests and stories."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_pages import wrong_drills
from tests.model.test_model import functions

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "architecture.md"
PLACE = re.compile(r"([\w/]+\.(?:py|c)): ([\w.]+(?:, [\w.]+)*)")
STORY = re.compile(r"(?:consumer|classic|migration|moves|share|streams)/\d+")
TEST = re.compile(r"tests/[\w/]+\.py")


@cache
def names_in(path: Path) -> set[str]:
    """Functions, methods, classes and constants; of a C file the functions that Python calls."""
    if path.suffix == ".c":
        return set(re.findall(r'^    \{"(\w+)", ', path.read_text(), re.M))
    names = functions(path)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def wrong(text: str) -> Iterator[str]:
    for quoted in re.findall(r"`([^`\n]+)`", text):
        if place := PLACE.fullmatch(quoted):
            path = ROOT / place[1] if place[1].startswith(("tests/", "tools/")) else ROOT / "sidecar" / place[1]
            if not path.is_file() or not names_in(path).issuperset(place[2].split(", ")):
                yield quoted
        elif STORY.fullmatch(quoted):
            if len(list((ROOT / "tests" / "stories").glob(f"{quoted}_*.txt"))) != 1:
                yield quoted
        elif TEST.fullmatch(quoted) and not (ROOT / quoted).is_file():
            yield quoted


def tables() -> dict[str, list[list[str]]]:
    """Heading of the first column -> the cells of each row."""
    found = {}
    text = PAGE.read_text().partition("\n## Where does a sentence of a KIP live?\n")[2]
    for head, rows in re.findall(r"^\| ([^|]+) \|.*\n\|[-|]+\n((?:\|.*\n)*)", text, re.M):
        found[head] = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows.splitlines()]
    return found


def kinds(cell: str, pattern: re.Pattern[str]) -> list[str]:
    return [quoted for quoted in re.findall(r"`([^`]+)`", cell) if pattern.fullmatch(quoted)]


@pytest.mark.tier("test")
def test_what_the_index_names_is_there() -> None:
    text = PAGE.read_text()
    assert list(wrong(text)) == [] and wrong_drills(text) == []


@pytest.mark.parametrize("head", ["what a client does", "question"])
def test_each_row_says_what_decides_and_what_shows_it(head: str) -> None:
    rows = tables()[head]
    assert len(rows) > 15
    assert [row for row in rows if len(row) != 4 or not kinds(row[1], PLACE)] == []
    shown = re.compile(rf"{STORY.pattern}|{TEST.pattern}(?:: .*)?")
    assert [row for row in rows if not kinds(row[3], shown)] == []


@pytest.mark.parametrize(
    "name",
    [
        "core/consumer/step.py: stop",
        "core/consumer/stop.py: step",
        "core/runtime/turn.py: Turn.arm",
        "native/_groups.c: uniform",
        "consumer/999",
        "tests/core/test_nothing.py",
    ],
)
def test_what_is_not_there_would_be_found(name: str) -> None:
    good = "`core/consumer/step.py: step` `native/_groups.c: simple` `consumer/005` `tools/alert_rules.py: RULES`"
    assert list(wrong(f"{good} `{name}`")) == [name]
