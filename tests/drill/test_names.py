"""`all` plays every drill, `cut` both that cut lines. tests/docs/test_pages.py compares the names with the pages."""

from __future__ import annotations

from sidecar.drill.drills.names import BOTH, NAMES
from sidecar.drill.drills.playing import chosen


def test_each_is_played_once_by_all() -> None:
    """In a checkout."""
    assert [d.name for d in chosen(["all"], {})] == list(NAMES)


def test_a_name_for_several() -> None:
    assert [d.name for d in chosen(["cut"], {})] == list(BOTH["cut"])
