"""Files that a task writes and reads, within its memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.gold import frames
from sidecar.audit.lake import files
from sidecar.audit.lake.files import TableWriter, dataset
from sidecar.audit.lake.lake import Lake
from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import DumpRecord
from sidecar.audit.tables.layers import BRONZE

DAYS, RECORDS, DAY_MS, VALUE = 20, 10, 86_400_000, b"x" * 1000


def records(day: int) -> Any:
    return bronze_batch([DumpRecord(0, i, day * DAY_MS, "create", None, VALUE) for i in range(RECORDS)])


def test_rows_that_wait_in_many_folders_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4 * RECORDS * len(VALUE)
    monkeypatch.setattr(files, "WAITING_BYTES", most)
    lake = Lake.at(tmp_path / "lake")
    target = lake.target(BRONZE, 0)
    writer = TableWriter(target)
    for turn in range(2):
        for day in range(DAYS):
            writer.write(records(day))
            waiting = [f.bytes for f in writer._files.values()]
            assert sum(waiting) <= most and len(waiting) == (DAYS if turn else day + 1)
    written = writer.close()
    assert len(written) == DAYS and {f.rows for f in written} == {2 * RECORDS}
    paths = [f"{target.folder}/{f.path}" for f in written]
    assert dataset(BRONZE, paths, target.folder).count_rows() == 2 * DAYS * RECORDS


def test_a_database_has_its_share_of_memory_also_where_no_affinity_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    with frames.database() as db:
        assert db.connection.execute("select current_setting('memory_limit')").fetchone()
