"""A lake in an object store is the same lake. Nothing is locked: Delta's conditional puts decide between writers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from sidecar.audit.ask import query
from sidecar.audit.ingest.batch import ingest
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run import pipeline
from sidecar.audit.run.maintain import maintain
from sidecar.audit.run.verdict import verdict
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from tests.audit.lake.making import bronze, dump, log
from tests.audit.lake.object_store import BUCKET, object_store
from tests.audit.lake.test_killed import Died, contents
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK, run_here

pytestmark = pytest.mark.tier("all")
WHERE = ["folder", pytest.param("object store", marks=pytest.mark.tier("nightly"))]
BATCHES, MOST = 3, {"max_records": "150"}


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with object_store() as found:
        yield found


@pytest.fixture
def store(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def source(tmp_path: Path) -> str:
    dump([bronze(played(6 + p, 120)[1][:300], p) for p in (0, 1)], tmp_path / "a.jsonl")
    return f"file://{tmp_path}/a.jsonl"


def fill(lake: Lake, source: str) -> None:
    while pipeline.to_do(source, lake, MOST):
        pipeline.audit(SPARK, source, lake, MOST)


def contents_and_verdict(lake: Lake) -> tuple[Any, ...]:
    batches = query.ask(lake, "select * exclude (done_ms, done_time) from runs order by batch")
    return contents(lake), gold_of(lake), verdict(lake), batches, query.broken(lake)


@pytest.mark.usefixtures("without_spark")
def test_a_lake_in_an_object_store_has_the_same_tables(store: str, source: str, tmp_path: Path) -> None:
    lake, local, copy = Lake.at(f"{store}/lake"), Lake.at(tmp_path / "lake"), Lake.at(tmp_path / "copy")
    fill(lake, source)
    fill(local, source)
    wanted = contents_and_verdict(local)
    assert contents_and_verdict(lake) == wanted and lake.last_batch() + 1 == BATCHES and wanted[1]["intervals"]
    maintain(lake, hours=0)
    assert len(lake.files(BRONZE)) == 2 and lake.packed and contents_and_verdict(Lake.at(f"{store}/lake")) == wanted
    table = DeltaTable(f"{store}/lake/gold/intervals").to_pyarrow_table()
    assert table.num_rows == len(wanted[1]["intervals"]), "whatever reads Delta reads it"
    fill(copy, f"{store}/lake")
    assert (contents(copy), gold_of(copy)) == wanted[:2], "it is a source, too"


def test_the_commands_take_a_uri(store: str, source: str, tmp_path: Path) -> None:
    """With Spark, whose tasks read and write the store."""
    local, said = str(tmp_path / "lake"), {}
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        pipeline.audit(SPARK, source, Lake.at(local))  # `run` finds nothing to do, and tells the same
    for where in (f"{store}/lake", local):
        for words in (["run", "--from", source], ["ownership", "--since", "1970-01-01"], ["status"]):
            command = [sys.executable, "-m", "sidecar.cli.main", "audit", *words, "--lake", where, "-o", "json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            said[where, words[0]] = done.returncode, done.stdout
            assert done.returncode in (0, 4) and done.stdout, done.stderr
    for word in ("run", "ownership", "status"):
        assert said[f"{store}/lake", word] == said[local, word]


def test_a_bucket_that_is_not_there(store: str) -> None:
    done = CliRunner().invoke(app, ["audit", "status", "--lake", "s3://no-such-bucket/lake"])
    assert done.exit_code == Code.USAGE and "s3://no-such-bucket/lake cannot be read" in done.output


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.usefixtures("without_spark")
def test_two_writers_at_once(
    where: str, store: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers meet before the commit of every batch of bronze, and one of them makes it."""
    alone, place = Lake.at(tmp_path / "alone"), f"{store}/lake" if where == "object store" else str(tmp_path / "lake")
    fill(alone, source)
    wanted, both, won = contents_and_verdict(alone), threading.Barrier(2), list[bool]()
    real = Lake.commit

    def meets(self: Lake, target: Any, files: Any, batch: int, attempt: int | None = None) -> bool:
        if target.table is not BRONZE:
            return real(self, target, files, batch, attempt)
        both.wait(60)
        won.append(real(self, target, files, batch, attempt))
        both.wait(60)
        return won[-1]

    failed = list[BaseException]()

    def writes() -> None:
        lake = Lake.at(place)
        try:
            for _ in range(BATCHES):
                ingest(SPARK, source, lake, MOST)
                both.wait(60)
        except BaseException as exc:  # noqa: BLE001
            failed.append(exc)
            both.abort()

    monkeypatch.setattr(Lake, "commit", meets)
    Lake.at(place).setup([BRONZE, *SILVER_TABLES.values(), *GOLD.values()])
    writers = [threading.Thread(target=writes) for _ in range(2)]
    for w in writers:
        w.start()
    for w in writers:
        w.join(120)
    assert failed == [] and sorted(won) == [False] * BATCHES + [True] * BATCHES
    lake = Lake.at(place)
    makers = [threading.Thread(target=pipeline.make_gold, args=(SPARK, Lake.at(place))) for _ in range(2)]
    for w in makers:
        w.start()
    for w in makers:
        w.join(120)
    pipeline.make_gold(SPARK, lake)
    assert contents_and_verdict(lake) == wanted


@pytest.mark.tier("nightly")
@pytest.mark.usefixtures("without_spark")
def test_death_in_an_object_store(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after a commit of any table; the next one goes on."""
    dump([bronze(log(1, 120), 0)], tmp_path / "a.jsonl")
    source, real, steps = f"file://{tmp_path}/a.jsonl", DeltaTable.create_write_transaction, 0
    pipeline.audit(SPARK, source, whole := Lake.at(tmp_path / "whole"))
    wanted = contents_and_verdict(whole)
    lake, dies_at = Lake.at(f"{store}/lake"), 0

    def dies_at_step(*args: Any, **kw: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == dies_at:
            raise Died
        real(*args, **kw)
        if steps == -dies_at:
            raise Died

    monkeypatch.setattr(DeltaTable, "create_write_transaction", dies_at_step)
    for step in (1, -1, 5, -9, 12, -9):
        steps, dies_at = 0, step
        with pytest.raises(Died):
            pipeline.audit(SPARK, source, lake)
    dies_at = 0
    fill(lake, source)
    assert contents_and_verdict(lake) == wanted
