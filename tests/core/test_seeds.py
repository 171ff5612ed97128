"""docs/design/seeds.md: what the drafts behind this project say, and where it is shown. Each place must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
SEEDS = DOCS / "design" / "seeds.md"
ROWS = [line for line in SEEDS.read_text().splitlines() if line.startswith("| ")]
STATEMENTS = [line for line in ROWS if not line.startswith("| statement ")]
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


@pytest.mark.parametrize("line", STATEMENTS, ids=lambda line: line[2:50])
def test_each_statement_is_shown_where_it_says(line: str) -> None:
    statement, shown = line.strip("| ").rsplit(" | ", 1)
    assert statement and LINK.sub("", shown).strip(", ") == "", "links and nothing else"
    places = LINK.findall(shown)
    assert places
    for name, path in places:
        text = (SEEDS.parent / path).resolve().read_text()
        if name.startswith("test_"):
            assert f"def {name}(" in text, f"{path} has no {name}"
        elif name.startswith("differences "):
            row = re.escape(name.removeprefix("differences "))
            assert path == "../reference/differences.md" and re.search(rf"(?<![\d.]){row}(?!\d)", text), (
                f"{name} is not named"
            )
        else:
            assert path.startswith(f"../../tests/stories/{name}_"), f"{name} is not the number of {path}"


def test_each_document_has_a_table() -> None:
    assert len(ROWS) - len(STATEMENTS) == 4 and len(STATEMENTS) > 100


def test_other_links_lead_somewhere() -> None:
    for page in (SEEDS, DOCS / "reference" / "differences.md"):
        for _, path in LINK.findall(page.read_text()):
            assert (page.parent / path.partition("#")[0]).exists(), path
