"""A lake that an earlier version has made takes the columns of this one: no reader and no maintenance loses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.delta import DeltaTables
from sidecar.audit.lake.files import TableWriter, dataset, listed
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.columns import FLAG, INT, TEXT, Column, Table, many, record

ID, OPEN = Column("id", INT, "An id."), Column("open", FLAG, "Whether it is open.")
OLD = Table("gold", "things", "Things.", ("id",), (ID, Column("parts", many(record(x=INT)), ""), OPEN), by=("open",))
PARTS = Column("parts", many(record(x=INT, y=TEXT)), "")
NEW = replace(OLD, columns=(ID, Column("note", TEXT, "A note."), PARTS, OPEN))
BEFORE = {"id": 1, "parts": [{"x": 1}], "open": False}
AFTER = {"id": 2, "note": "n", "parts": [{"x": 2, "y": "y"}], "open": False}
FILLED = {"id": 1, "note": None, "parts": [{"x": 1, "y": None}], "open": False}
Rows = Any
"""A list of a dictionary for each row."""


def put(lake: Lake, table: Table, batch: int, row: dict[str, Any]) -> None:
    target = lake.target(table, batch)
    writer = TableWriter(target)
    writer.write(pa.RecordBatch.from_pylist([row], schema=table.arrow))
    assert lake.commit(target, writer.close(), batch)


def by_duckdb(lake: Lake) -> Rows:
    return [dict(zip(NEW.names, row, strict=True)) for row in duckdb.execute(f"from {lake.sql(NEW)}").fetchall()]


def by_arrow(lake: Lake) -> Rows:
    paths = [f.path for f in lake.files(NEW)]
    return dataset(NEW, paths, str(lake.folder(NEW))).to_table().to_pylist()


def by_delta(lake: Lake) -> Rows:
    rows = DeltaTable(str(lake.folder(NEW))).to_pyarrow_table().to_pylist()
    return [{name: row.get(name, "no column") for name in NEW.names} for row in rows]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The earlier version has written a batch."""
    made = Lake.at(tmp_path / "lake")
    made.setup([OLD])
    put(made, OLD, 0, BEFORE)
    return made


@pytest.mark.parametrize("read", [by_duckdb, by_arrow, by_delta])
def test_each_reader_has_rows_of_both_versions(lake: Lake, read: Callable[[Lake], Rows]) -> None:
    put(lake, NEW, 1, AFTER)
    assert sorted(read(lake), key=lambda r: r["id"]) == [FILLED, AFTER]


def test_duckdb_reads_a_lake_that_this_version_has_never_written(lake: Lake) -> None:
    assert by_duckdb(lake) == [FILLED]
    described = [duckdb.execute(f"describe from {sql}").fetchall() for sql in (listed(NEW, []), lake.sql(NEW))]
    assert described[0] == described[1]


def test_maintenance_keeps_the_values(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that did not add the column to the log has written one of the files."""
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "create", lambda self, table: self._log(table))
        put(lake, NEW, 1, AFTER)
    assert lake.compact(NEW, 1, 1 << 20) == (2, 1)
    assert sorted(by_arrow(lake), key=lambda r: r["id"]) == [FILLED, AFTER]


def test_maintenance_names_the_table_of_a_damaged_file(lake: Lake) -> None:
    put(lake, NEW, 1, AFTER)
    Path(lake.files(NEW)[0].path).write_bytes(b"no Parquet")
    with pytest.raises(AuditError, match=r"gold\.things cannot be compacted"):
        lake.compact(NEW, 1, 1 << 20)


def test_the_columns_are_added_once_also_by_two_writers_and_stay_for_an_earlier_version(lake: Lake) -> None:
    other = Lake.at(lake.base)
    assert other.committed(OLD) == 0
    for each, table in ((lake, NEW), (other, NEW), (lake, NEW), (other, OLD), (lake, NEW)):
        each.setup([table])
    entries = list((Path(lake.base) / "gold" / "things" / "_delta_log").glob("*.json"))
    assert len(entries) == 3, "made, a batch, the columns"
    put(lake, OLD, 1, BEFORE)
    assert by_delta(lake) == [FILLED, FILLED]


def test_a_writer_that_comes_second_finds_the_columns(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the log before either adds to it."""
    from sidecar.audit.lake import delta

    other, real = Lake.at(lake.base), delta._missing

    def meanwhile(log: DeltaTable, table: Table) -> Any:
        missing = real(log, table)
        monkeypatch.setattr(delta, "_missing", real)
        other.setup([NEW])
        return missing

    monkeypatch.setattr(delta, "_missing", meanwhile)
    lake.setup([NEW])
    put(lake, NEW, 1, AFTER)
    assert sorted(by_delta(lake), key=lambda r: r["id"]) == [FILLED, AFTER]
