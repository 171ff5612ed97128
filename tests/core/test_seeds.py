"""docs/design/seeds.md: what the drafts behind this project say, and where it is shown. Each place must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
SEEDS = DOCS / "design" / "seeds.md"
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
DOCUMENTS = [
    [line for line in section.splitlines() if line.startswith("- ")] for section in SEEDS.read_text().split("\n## ")[1:]
]
STATEMENTS = [line for lines in DOCUMENTS for line in lines]


@pytest.mark.parametrize("line", STATEMENTS, ids=lambda line: line[2:50])
def test_each_statement_is_shown_where_it_says(line: str) -> None:
    statement, _, names = line.removeprefix("- ").partition(" [")
    shown = "[" + names
    assert statement.endswith(".") and LINK.sub("", shown).strip(", ") == "", "links and nothing else"
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
            assert Path(path).name.startswith(f"{name}_"), f"{name} is not the number of {path}"


def test_each_document_has_statements() -> None:
    assert len(DOCUMENTS) == 4 and all(DOCUMENTS) and len(STATEMENTS) > 100


def test_other_links_lead_somewhere() -> None:
    for page in (SEEDS, DOCS / "reference" / "differences.md"):
        for _, path in LINK.findall(page.read_text()):
            assert (page.parent / path.partition("#")[0]).exists(), path
