"""The page about the tables is made from their descriptions."""

from __future__ import annotations

from pathlib import Path

from tools.audit_tables import PAGE, page


def test_the_page_about_the_tables_is_that_of_the_code(root: Path) -> None:
    assert (root / PAGE).read_text() == page(), "run python -m tools.audit_tables"
