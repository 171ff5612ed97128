"""The table of brokers: it has a form, and a run changes no cell but its own. The cells are run at night."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.drill.artifacts import KAFKA
from tests.matrix import brokers
from tests.matrix.broker_table import CELL, CELLS, HEAD, VERSIONS, Found, cells_of, row_of, rows, updated
from tests.matrix.report import LACKS, NO, YES

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "reference/versions.md"
RULE = "|---" * (1 + len(CELLS)) + "|"
EMPTY = ["before", HEAD, RULE, *(row_of(v) + " not run |" * len(CELLS) for v in VERSIONS), "after"]


def test_each_cell_of_the_document_says_what_was_seen_and_when() -> None:
    table = rows(DOCUMENT.read_text())
    assert all(len(cells) == len(CELLS) for cells in table.values())
    assert [c for cells in table.values() for c in cells if not CELL.fullmatch(c)] == []
    lacking = {(v, c) for v, cells in table.items() for c, said in zip(CELLS, cells, strict=True) if said == LACKS}
    assert lacking == {(v, c) for v in VERSIONS for c in CELLS if c not in cells_of(v)}


def test_a_run_changes_its_own_cells() -> None:
    text = updated("\n".join(EMPTY), {("2.8.2", "demo"): Found(YES), (KAFKA, "tools"): Found(NO, "a|b")})
    table = rows(text)
    assert all(CELL.fullmatch(c) for cells in table.values() for c in cells)
    assert table["2.8.2"][0].startswith("yes ") and table[KAFKA][list(CELLS).index("tools")].endswith(": a/b")
    assert sum(c == "not run" for cells in table.values() for c in cells) == len(VERSIONS) * len(CELLS) - 2
    assert text.startswith("before\n") and text.endswith("\nafter")


def test_a_table_of_another_form_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"no row of 3\.3\.2"):
        rows("\n".join(EMPTY).replace("3.3.2", "3.3.3"))


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("version", VERSIONS)
def test_all_cells(version: str, tmp_path: Path) -> None:
    assert brokers.main(["--kafka", version, "--folder", str(tmp_path)]) == 0
