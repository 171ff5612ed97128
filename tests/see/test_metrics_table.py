"""The page about the metrics is made from their tables."""

from __future__ import annotations

from pathlib import Path

from tools.metrics_table import PAGE, page


def test_the_page_about_the_metrics_is_that_of_the_code(root: Path) -> None:
    assert (root / PAGE).read_text() == page(), "run python -m tools.metrics_table"
