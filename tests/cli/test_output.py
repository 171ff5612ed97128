"""The tables that commands print, and the owner of a partition of a classic group."""

from __future__ import annotations

import re
import sys

import pytest

from sidecar.audit.history.group_history import Event, History
from sidecar.cli.history import _generation
from sidecar.cli.listing import Listing
from sidecar.cli.output import Output, print_rows

LONG = {"group": "app-load-2-5-of-many", "coordinates_since": "2026-11-26 04:18:38.000", "why": "a long sentence " * 12}


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_no_word_of_a_table_is_broken_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows([LONG], Output.TABLE)
    head, row = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert head.split() == ["group", "coordinates_since", "why"]
    assert row.split() == " ".join(LONG.values()).split()
    assert row == row.rstrip() or len(row) < 1_000, "it is as wide as what stands in it"


@pytest.mark.parametrize(
    ("events", "epoch"),
    [
        ([], 5),
        ([(1, "Stable", "generation 2, leader m")], 2),
        ([(1, "Stable", "generation 1"), (2, "Stable", "generation 3")], 3),
        ([(1, "Stable", "generation 2"), (11, "Stable", "generation 4")], 2),
        ([(1, "Stable", "generation 2"), (2, "group epoch", "3")], 5),
        ([(1, "group epoch", "3"), (2, "PreparingRebalance", "generation 3, leader m")], 3),
    ],
)
def test_the_epoch_of_a_classic_groups_owner_is_its_generation(events: list[tuple[int, str, str]], epoch: int) -> None:
    """An assignment that stays is not written again, and one that came from the broker says no generation."""
    found = History("g", events=[Event(ms, n, what, "", detail, "") for n, (ms, what, detail) in enumerate(events)])
    generation = _generation(found, 10)
    assert (5 if generation is None else generation) == epoch


def test_what_is_not_known_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: in JSON an unknown number was an empty text."""
    found = Listing({"a": {"type": "share"}, "b": {"type": "share"}}, members={"b": 3}, lag={"b": 0})
    for output, shown in ((Output.JSON, '"members": null, "lag": null'), (Output.CSV, "a,share,,,\n")):
        print_rows(found.rows(), output)
        assert shown in capsys.readouterr().out
