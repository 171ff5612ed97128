"""Questions to a lake, and its page, with rows that no sane cluster has. The lake has gold only, made by hand."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sidecar.audit.lake.batch import Batch
from sidecar.audit.lake.files import TableWriter
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import put_json
from sidecar.audit.tables.gold import GOLD
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from tests.audit.page.rows import BEGIN, Row, covered, row, tables

pytestmark = pytest.mark.tier("test")  # each lake has a log for each table

Rows = list[dict[str, Any]]
SECOND = "2025-11-23T00:00:{:02d}".format


def filled(folder: Path, rows: Mapping[str, list[Row]]) -> Lake:
    lake = Lake.at(folder / "lake")
    lake.setup()
    for name, made in tables(rows).items():
        writer = TableWriter(lake.target(GOLD[name], 0))
        writer.write(pa.RecordBatch.from_pylist(made.to_pylist(), schema=made.schema))
        lake.commit(writer.target, writer.close(), 0)
    put_json(lake.record(0), asdict(Batch(0, "", "", 0, {}, {}, {}, {"records": 0}, {}, {})))
    return lake


def asked(lake: Lake, *words: str) -> tuple[int, Rows]:
    done = CliRunner().invoke(app, ["audit", *words, "--lake", str(lake.base), "-o", "json"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_second_owner_is_one_as_long_as_both_own(tmp_path: Path) -> None:
    """Symptom: `overlaps --since 1h` ended with 0 while a partition had two owners, for they began before."""
    first, second = row("intervals", 0, member_id="m-1"), row("intervals", 20_000, 40_000, member_id="m-2")
    both = row("second_owners", 20_000, member_id="m-2", from_offset=20_000, other_member_id="m-1")
    lake = filled(tmp_path, {"intervals": [first, second], "second_owners": [both]})
    for since, code in ((10, Code.FINDINGS), (30, Code.FINDINGS), (50, Code.OK)):
        assert asked(lake, "overlaps", "--since", SECOND(since))[0] == code, since
    assert asked(lake, "overlaps", "--until", SECOND(10))[0] == Code.OK


def test_a_topic_whose_name_ends_in_a_number(tmp_path: Path) -> None:
    """Symptom: of topic `log-2024` nothing was found, because that was partition 2024 of topic `log`."""
    places = (("log-2024", 0), ("log-2024", 1), ("log", 2024), ("log", 1))
    lake = filled(tmp_path, {"intervals": [row("intervals", topic=t, topic_key=t, partition=p) for t, p in places]})
    wanted = {"log-2024": [1, 0, 1], "log-2024-1": [1], "log-1": [1], "log": [1, 2024]}
    found = {topic: asked(lake, "ownership", "--topic", topic)[1] for topic in wanted}
    assert {topic: len(rows) for topic, rows in found.items()} == {t: len(ps) for t, ps in wanted.items()}


def test_columns_of_a_query(tmp_path: Path) -> None:
    """Symptom: of two columns of a name only the last one was printed; a mean of times was a bug of this program."""
    lake = filled(tmp_path, {"intervals": [row("intervals", 1000)], "members": [row("members", 5000)]})
    code, rows = asked(lake, "sql", "select i.from_ms, m.from_ms from intervals i, members m")
    assert (code, list(rows[0].values())) == (0, ["2025-11-23 00:00:01.000", "2025-11-23 00:00:05.000"])
    assert asked(lake, "sql", "select avg(from_ms) as from_ms, 'x' as ms from intervals") == (
        0,
        [{"from": BEGIN + 1000.0, "ms": "x"}],
    )
    done = CliRunner().invoke(app, ["audit", "sql", 'select 1 as "[/x] [bold]y"', "--lake", str(lake.base)])
    assert done.exit_code == 0 and "[/x] [bold]y" in done.stdout, "a header is no markup"


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    lake = filled(tmp_path, {"coverage": [covered(1000)]})
    done = CliRunner().invoke(app, ["audit", "report", "--lake", str(lake.base), "--out", str(tmp_path)])
    assert done.exit_code == Code.USAGE and "Name another file" in done.output


def test_the_page_has_what_is_newer_than_this_machines_clock(tmp_path: Path) -> None:
    """Symptom: a clock that was behind the brokers' left the latest records out of a page with --since."""
    now = int(time.time() * 1000) - BEGIN + 60_000
    late = row("stale_writes", now, what="record", owner_epoch=1, claimed_epoch=2)
    lake, out = filled(tmp_path, {"coverage": [covered(now)], "stale_writes": [late]}), tmp_path / "page.html"
    done = CliRunner().invoke(app, ["audit", "report", "--lake", str(lake.base), "--out", str(out), "--since", "1h"])
    assert done.exit_code == Code.OK and "1 finding" in out.read_text(encoding="utf-8")


def test_a_lake_of_an_earlier_version(tmp_path: Path) -> None:
    """Symptom: `status` and `report` ended with a traceback, because a column was null that never is."""
    lake = filled(tmp_path, {"coverage": [covered(1000)]})
    path = Path(lake.files(GOLD["coverage"])[0].path)
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["longest_hole"]), path)
    for words in (("status",), ("report", "--out", str(tmp_path / "page.html"))):
        done = CliRunner().invoke(app, ["audit", *words, "--lake", str(lake.base)])
        assert done.exit_code == Code.UNREACHED and "of an earlier version, without longest_hole" in done.output


def test_a_full_disk_is_no_bug_of_this_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(lake: Lake) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/_batches")

    lake = filled(tmp_path, {})
    monkeypatch.setattr("sidecar.audit.run.verdict.verdict", full)
    done = CliRunner().invoke(app, ["audit", "status", "--lake", str(lake.base)])
    assert done.exit_code == Code.UNREACHED and "No space left" in done.output and "bug" not in done.output
