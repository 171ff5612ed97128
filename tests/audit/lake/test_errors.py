"""A failure that can be expected is an AuditError, which says what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from sidecar.audit import dataframes
from sidecar.audit.ask import query
from sidecar.audit.errors import AuditError, Misused, NoTopic, Refused
from sidecar.audit.ingest import batch as ingests
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.spark_tasks import answered, attempted
from sidecar.audit.run import pipeline
from sidecar.audit.source.uri import open_source
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_pipeline import played
from tests.audit.lake.without_spark import SPARK


@pytest.fixture
def lake(tmp_path: Path, without_spark: None) -> Lake:
    dump([bronze(played(6, 40)[1], 0)], tmp_path / "a.jsonl")
    made = Lake.at(tmp_path / "lake")
    pipeline.audit(SPARK, f"file://{tmp_path}/a.jsonl", made)
    return made


def test_a_record_of_a_batch_that_is_damaged(lake: Lake) -> None:
    Path(lake.record(0)).write_text('{"number": 0')
    with pytest.raises(AuditError, match=r"00000000\.json is damaged .* backup"):
        lake.batch()


def test_a_file_of_a_table_that_is_gone(lake: Lake) -> None:
    for table in (BRONZE, GOLD["intervals"]):
        Path(lake.files(table)[0].path).unlink()
        with pytest.raises(AuditError, match=rf"{table.name} cannot be read.*backup"):
            lake.read_arrow(table)
    with pytest.raises(AuditError, match=r"(?s)cannot be read.*backup"):
        query.ask(lake, "select * from intervals")


def test_a_wrong_query_is_no_damaged_lake(lake: Lake) -> None:
    """Symptom: an operator who forgot a value was told to put a file of the lake back from a backup."""
    for wrong in (
        "select * from intervals where topic = $topic",
        "select * from 'no such file.csv'",
        "select * from intervals where regexp_matches(topic, '(')",
        "select no_such_column from intervals",
    ):
        done = CliRunner().invoke(app, ["audit", "sql", wrong, "--lake", str(lake.base)])
        assert done.exit_code == Code.USAGE and "backup" not in done.output, wrong


def test_values_of_all_types_can_be_printed(lake: Lake) -> None:
    """Symptom: a date or a decimal ended `-o json` with a traceback."""
    values = "1.5 as n, 'a'::blob as b, date '2026-11-29' as d, interval 1 day as i, uuid() as u, [now()] as t"
    for form in ("json", "yaml", "csv", "table"):
        done = CliRunner().invoke(app, ["audit", "sql", f"select {values}", "--lake", str(lake.base), "-o", form])
        assert done.exit_code == Code.OK and "1.5" in done.stdout and "2026-11-29" in done.stdout, form


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_records": "abc"}, "max_records is a number, not 'abc'"),
        ({"max_records": "-1"}, "max_records is a number"),
        ({"starting_offsets": "latest"}, "starting_offsets is earliest, or"),
        ({"starting_offsets": "[1]"}, "starting_offsets is earliest, or"),
    ],
)
def test_an_option_that_cannot_be(options: dict[str, str], said: str, tmp_path: Path) -> None:
    dump([bronze(played(6, 20)[1], 0)], tmp_path / "a.jsonl")
    with pytest.raises(Misused, match=said):
        ingests.waiting(f"file://{tmp_path}/a.jsonl", Lake.at(tmp_path / "lake"), options)


def test_an_option_of_the_topic_that_cannot_be() -> None:
    with pytest.raises(Misused, match="records_per_task is a number"):
        open_source("kafka://h:1", {"records_per_task": "many"})


def test_the_command_tells_wrong_usage_from_what_cannot_be_read(tmp_path: Path) -> None:
    said = ["audit", "run", "--lake", str(tmp_path / "lake"), "--from"]
    wrong = CliRunner().invoke(app, [*said, "kafka://h:1", "-O", "Records_per_task=many"])  # in any case
    missing = CliRunner().invoke(app, [*said, f"file://{tmp_path}/none"])
    assert (wrong.exit_code, missing.exit_code) == (Code.USAGE, Code.UNREACHED)


@pytest.mark.parametrize("error", [AuditError, Misused, NoTopic, Refused])
def test_the_driver_raises_what_a_task_raised(error: type[Exception]) -> None:

    def fails(ids: Iterator[int]) -> list[str]:
        raise error("it is so")

    with pytest.raises(AuditError, match=r"^it is so$") as raised:
        answered(attempted(fails, iter([0])))
    assert raised.type is error


def test_gold_of_a_stream_is_refused() -> None:
    """Each of its batches would be folded by itself, so no earlier member would own anything."""
    with pytest.raises(Misused, match="gold needs all records"):
        dataframes.gold(MagicMock(isStreaming=True))
    assert dataframes.gold(MagicMock(isStreaming=False)) is not None


def test_a_moment_is_told_from_a_duration() -> None:
    assert {"from_ms", "ms", "complete_since_ms"} <= query.MOMENTS
    assert not {"at_most_ms", "settled_after_ms", "session_timeout_ms"} & query.MOMENTS


def test_without_java(tmp_path: Path) -> None:
    code = (
        "from sidecar.audit.errors import AuditError\nfrom sidecar.audit.run.session import session\n"
        "try:\n    session()\nexcept AuditError as exc:\n    print(exc)"
    )
    env = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)
    assert "it needs Java 17 or later" in done.stdout
