"""A log that was opened once is as it is now, whatever other programs have done meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sidecar.audit.lake import delta
from sidecar.audit.lake.files import TableWriter
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.columns import INT, Column, Table

THINGS = Table("gold", "things", "Things.", ("id",), (Column("id", INT, "An id."),))


def put(lake: Lake, batch: int) -> None:
    target = lake.target(THINGS, batch)
    writer = TableWriter(target)
    writer.write(pa.RecordBatch.from_pylist([{"id": batch}], schema=THINGS.arrow))
    assert lake.commit(target, writer.close(), batch)


def seen(lake: Lake) -> tuple[int, list[int]]:
    rows = lake.read_arrow(THINGS).column("id").to_pylist()
    return lake.committed(THINGS), sorted(int(i) for i in rows)


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Lake, Lake]:
    """The same lake in two programs; both have read a batch."""
    ours, theirs = Lake.at(tmp_path / "lake"), Lake.at(tmp_path / "lake")
    ours.setup([THINGS])
    put(ours, 0)
    assert seen(ours) == seen(theirs) == (0, [0])
    return ours, theirs


def test_batches_of_another_program(lakes: tuple[Lake, Lake]) -> None:
    ours, theirs = lakes
    for batch in (1, 2):
        put(theirs, batch)
    assert seen(ours) == (2, [0, 1, 2])


def test_a_table_that_was_made_anew(lakes: tuple[Lake, Lake]) -> None:
    """Entries of the new log have the numbers of the old one."""
    ours, theirs = lakes
    shutil.rmtree(str(theirs.folder(THINGS)))
    theirs.setup([THINGS])
    put(theirs, 0)
    put(theirs, 1)
    assert seen(ours) == (1, [0, 1])


def test_entries_that_were_cleaned_away(lakes: tuple[Lake, Lake]) -> None:
    """After a week another program removes the entries before its checkpoint, with those that were read here and those
    that come next."""
    ours, theirs = lakes
    for batch in range(1, 6):
        put(theirs, batch)
    folder = Path(str(theirs.folder(THINGS)))
    log = DeltaTable(str(folder))
    log.create_checkpoint()
    for version in range(log.version()):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    assert seen(ours) == (5, [0, 1, 2, 3, 4, 5])


def test_a_log_is_read_again_only_if_it_has_grown(lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: an increment of a lake spent half of its time on logs that had nothing new."""
    ours, theirs = lakes
    asked: list[int] = []

    def update(log: DeltaTable) -> None:
        asked.append(log.version())
        log._table.update_incremental()

    monkeypatch.setattr(DeltaTable, "update_incremental", update)
    monkeypatch.setattr(delta, "_open", lambda folder: pytest.fail("it is open"))
    for _ in range(3):
        assert seen(ours) == (0, [0])
    assert asked == []
    put(theirs, 1)
    asked.clear()
    assert seen(ours) == (1, [0, 1]) and len(asked) == 1
