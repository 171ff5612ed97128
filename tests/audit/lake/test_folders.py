"""The folder of a lake: which ones there are, which are refused, and that each tool finds the lake's files there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import duckdb
import pytest
from typer.testing import CliRunner

from sidecar.audit.ask import catalog, query
from sidecar.audit.ask.lake_tables import GroupStateLake
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.delta import delta_files
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import folder_at
from sidecar.audit.run import pipeline
from sidecar.audit.run.maintain import maintain
from sidecar.audit.tables.gold import GOLD
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_pipeline import played
from tests.audit.lake.without_spark import SPARK, run_here

ENTRIES = played(3, 40)[1]
ODD = ["it's a lake", "a[1]", "b[!x]", "a{b,c}", "a*", "größe", "the offset"]


def filled(folder: Path, count: int = len(ENTRIES)) -> Lake:
    dump([bronze(ENTRIES[:count], 0)], folder.parent / "dump.jsonl")
    lake = Lake.at(folder)
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        pipeline.audit(SPARK, f"file://{folder.parent}/dump.jsonl", lake)
    return lake


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    """Beside each other: with a wildcard, the name of one matches another, which has fewer records."""
    base = tmp_path_factory.mktemp("lakes")
    made = {name: filled(base / name, len(ENTRIES) // 2) for name in ("a1", "by", "ab", "ac")}
    return made | {name: filled(base / name) for name in ODD}


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", ODD)
def test_questions_and_views_read_the_lake_itself(lakes: dict[str, Lake], name: str) -> None:
    lake = lakes[name]
    assert query.ask(lake, "select records from runs") == [{"records": len(ENTRIES)}]
    rows = len(lake.read_arrow(GOLD["intervals"]))
    assert query.ask(lake, "select count(*) as n from intervals") == [{"n": rows}]
    with duckdb.connect() as db:
        for statement in catalog.statements(lake, "duckdb"):
            db.execute(statement)
        assert db.execute("select count(*) from gold.intervals").fetchall() == [(rows,)]


@pytest.mark.tier("all")
@pytest.mark.parametrize(("name", "escaped"), [("a[1]", r"a\[1\]"), ("a{b,c}", r"a\{b,c\}"), ("a*", r"a\*")])
def test_spark_gets_uris_without_wildcards(lakes: dict[str, Lake], name: str, escaped: str) -> None:
    """Spark's default file system may be another, and it decodes no %20."""
    lake, spark = lakes[name], MagicMock()
    lake.read(spark, GOLD["intervals"])
    with_base = spark.read.schema.return_value.option
    base = Path(lake.base)
    with_base.assert_called_once_with("basePath", f"file://{base}/gold/intervals")
    paths = with_base.return_value.parquet.call_args.args
    assert paths and all(p.startswith(f"file://{base.parent}/{escaped}/gold/intervals/open=") for p in paths)


@pytest.mark.parametrize("tool", ["delta", "trino"])
def test_other_tools_get_uris_that_are_not_encoded(tmp_path: Path, tool: str) -> None:
    lake = Lake.at(tmp_path / "my lake")
    lake.setup()
    assert f"'file://{tmp_path}/my lake/gold/intervals'" in "".join(catalog.statements(lake, tool, ["gold"]))


@pytest.mark.parametrize("name", ["p%20q", "p#q", "p?q", "p\\q"])
def test_a_path_that_tools_would_take_for_another(tmp_path: Path, name: str) -> None:
    for uri in (tmp_path / name, f"delta://{tmp_path}/{name}", f"s3://bucket/{name}/lake", tmp_path / name / "lake"):
        with pytest.raises(AuditError, match="is no folder of a lake: its path must have none of %"):
            Lake.at(uri)
    with pytest.raises(AuditError, match="none of %"):
        delta_files(tmp_path / name)


@pytest.mark.parametrize(
    "uri",
    [
        *("dbfs:/mnt/lake", "s3:/bucket/lake", "s3:///lake", "delta:/lake", "C:/lake", "hdfs://host/lake"),
        *("s3n://bucket/lake", "https://host/lake", "wasbs://container@account/lake", "kafka://host:1"),
    ],
)
def test_a_uri_of_no_lake_is_refused_with_the_valid_forms(uri: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", "status", "--lake", uri])
    assert done.exit_code == Code.USAGE and f"{uri!r} is no folder of a lake: FOLDER, s3://BUCKET" in done.output
    assert not list(tmp_path.iterdir())


def test_folders_that_are_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    uris = (f"{tmp_path}/lake", f"delta://{tmp_path}/lake", f"file://{tmp_path}/lake/", "lake", "./lake")
    assert {str(folder_at(uri)) for uri in uris} == {str(tmp_path / "lake")}
    for uri in (
        "s3://bucket/lake",
        "s3a://bucket",
        "abfss://c@a.dfs.core.windows.net/lake",
        "gs://b/l",
        "delta://s3://b/l",
    ):
        assert str(folder_at(f"{uri}/")) == uri.removeprefix("delta://")


def test_a_folder_without_a_lake_has_no_answer(tmp_path: Path) -> None:
    """ "No second owners" would be a wrong one."""
    typo, options = Lake.at(tmp_path / "typo"), {"lake": f"{tmp_path}/typo", "table": "gold.second_owners"}
    source = GroupStateLake(options)
    for read in (
        lambda: typo.read(MagicMock(), GOLD["second_owners"]),
        lambda: typo.read_arrow(GOLD["second_owners"]),
        lambda: typo.sql(GOLD["second_owners"]),
        lambda: query.ask(typo, "select * from second_owners"),
        lambda: source.reader(MagicMock()).partitions(),
        lambda: catalog.register(MagicMock(), options["lake"]),
        lambda: maintain(typo),
    ):
        with pytest.raises(AuditError, match=f"there is no lake in {tmp_path}/typo"):
            read()


def test_a_lake_without_gold_is_empty(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    lake.setup()
    assert len(lake.read_arrow(GOLD["second_owners"])) == 0
