"""The matrix must be able to say no: what members report, planted wrong in each way, is found."""

from __future__ import annotations

import pytest

from tests.matrix import build
from tests.matrix.member import Journal, held_twice, missing, repeated
from tests.matrix.report import FAILED, INCOMPLETE, KAFKA_TOO, LACKS, NO, NOT_RUN, YES, Cell, Notes, Row, Run
from tests.matrix.scenarios import SCENARIOS
from tests.matrix.table import EVERY


def journal(name: str, *events: tuple[int, str, list[int]]) -> Journal:
    """Make a journal from events: the time, what happened, and partitions; or a partition and an offset."""
    j = Journal(name)
    for at, event, numbers in events:
        if event == "consumed":
            j.add({"t": at, "e": event, "partition": numbers[0], "offset": numbers[1]})
        else:
            j.add({"t": at, "e": event, "partitions": numbers})
    return j


def test_a_partition_that_moves_is_held_once() -> None:
    a = journal("a", (0, "assigned", [0, 1]), (10, "revoked", [1]))
    b = journal("b", (10, "assigned", [1]))
    assert (a.held(), b.held(), held_twice([a, b])) == ({0}, {1}, [])


@pytest.mark.parametrize("end", [(11, "revoked", [1]), (11, "lost", [1]), (11, "closing", []), None])
def test_a_partition_that_is_given_up_too_late_is_held_twice(end: tuple[int, str, list[int]] | None) -> None:
    a = journal("a", (0, "assigned", [0, 1]), *([end] if end else []))
    b = journal("b", (10, "assigned", [1]))
    assert len(held_twice([a, b])) == 1


def test_an_assignment_of_nothing_is_a_rebalance_too() -> None:
    assert journal("a", (0, "assigned", [0]), (5, "assigned", [])).rebalances == 2


def test_records_that_nobody_consumed_are_missing() -> None:
    a = journal("a", (0, "consumed", [0, 0]), (1, "consumed", [0, 2]))
    b = journal("b", (2, "consumed", [1, 0]))
    assert missing({0: 3, 1: 1, 2: 0}, [a, b]) == 1
    assert missing({0: 1, 1: 1}, [a, b]) == 0


def test_records_that_two_members_consumed_are_repeated() -> None:
    a = journal("a", (0, "consumed", [0, 0]), (1, "consumed", [0, 1]))
    b = journal("b", (2, "consumed", [0, 1]))
    assert (repeated([a]), repeated([a, b])) == (0, 1)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([YES, YES], 0),
        ([YES, LACKS, KAFKA_TOO], 0),
        ([YES, NO], FAILED),
        ([NO, NOT_RUN], FAILED),
        ([YES, NOT_RUN], INCOMPLETE),
    ],
)
def test_the_exit_code_tells_what_failed_and_what_was_not_run(statuses: list[str], code: int) -> None:
    cells = {str(i): Cell(s) for i, s in enumerate(statuses)}
    assert Run("4.3.1", "directly", [], [Row("a", "A", "classic", cells=cells)]).exit_code() == code


def test_a_run_of_nothing_is_incomplete() -> None:
    assert Run("4.3.1", "directly", []).exit_code() == INCOMPLETE


def test_the_same_reason_has_one_footnote() -> None:
    notes = Notes()
    assert [notes.cell(Cell(NO, w)) for w in ("x", "y", "x")] == ["no (1)", "no (2)", "no (1)"]
    assert notes.cell(Cell(YES)) == "yes"


def test_a_missing_tool_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(build.NotRun, match="no Go"):
        build.Go("franz").build()


def test_every_client_has_a_name_and_a_row_of_its_own() -> None:
    assert len({c.name for c in EVERY}) == len({(c.title, c.how, c.kit) for c in EVERY}) == len(EVERY)
    assert all(set(c.lacks) <= set(SCENARIOS) for c in EVERY)
