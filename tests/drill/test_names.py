"""Every drill is on the pages that tell of drills, and what they tell of is there."""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.drill.drills.__main__ import BOTH, DRILLS, chosen

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = {d.name for d in DRILLS}


def column(page: str, head: str, place: int) -> set[str]:
    """What stands in backquotes in this column of the table that begins with `head`."""
    table = (DOCS / page).read_text().partition(f"\n{head}")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    assert rows, f"{page} has no table {head}"
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[place])}


def test_each_is_played_once_by_all() -> None:
    names = [d.name for d in chosen(["all"], {})]
    assert len(names) == len(set(names)) and set(names) == NAMES
    assert [d.name for d in chosen(["cut"], {})] == list(BOTH["cut"])


def test_the_table_of_drills_has_them_all() -> None:
    told = column("operations.md", "| `NAME=` |", 1)
    assert {n for name in told for n in BOTH.get(name, (name,))} == NAMES


def test_each_procedure_has_a_drill() -> None:
    played = column("procedures.md", "| procedure | drill |", 2)
    assert played == {"roll-out", "rolling-upgrade", "rollback", "take-out", "restore", "remove-broker"} <= NAMES


def test_each_drill_that_a_command_of_a_page_names_is_there() -> None:
    """`make bench` has names, too."""
    for page in DOCS.glob("*.md"):
        for names in re.findall(r"make drill NAME=(?:\"([^\"]+)\"|([a-z-]+))", page.read_text()):
            assert set("".join(names).split()) <= {*NAMES, *BOTH, "all"}, page.name
