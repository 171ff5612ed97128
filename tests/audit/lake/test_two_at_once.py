"""Two runs, two maintenances, and another program that compacts a table: nothing is lost, or the audit refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sidecar.audit.ask import query
from sidecar.audit.errors import Refused
from sidecar.audit.ingest import batch as ingests
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import put_json
from sidecar.audit.run import maintain as maintains
from sidecar.audit.run import pipeline
from sidecar.audit.run.maintain import maintain
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES
from tests.audit.lake.making import T0, bronze, dump
from tests.audit.lake.test_killed import Died
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.tier("all")]
_, ENTRIES = played(3, 40)
HALF = len(ENTRIES) // 2


class Filled:
    """A lake beside its source, which a run reads up to some record."""

    def __init__(self, folder: Path) -> None:
        self.source, self.base = folder / "dump.jsonl", folder / "lake"

    @property
    def lake(self) -> Lake:
        return Lake.at(self.base)

    def given(self, begin: int, end: int) -> str:
        dump([bronze(ENTRIES[begin:end], 0, begin, T0 + begin)], self.source)
        return f"file://{self.source}"

    def run(self, begin: int, end: int) -> None:
        pipeline.audit(SPARK, self.given(begin, end), self.lake)


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path)


def test_a_second_first_run_leaves_the_files_of_the_first(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins after the first has folded, and dies before it has folded itself."""
    real, begun = pipeline._folded, list[str]()

    def folded(*args: Any) -> Any:
        begun.append("run")
        if len(begun) == 2:
            raise Died
        files = real(*args)
        if len(begun) == 1:
            with pytest.raises(Died):
                pipeline.make_gold(SPARK, filled.lake)
        return files

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_folded", folded)
        filled.run(0, HALF)
    assert begun == ["run", "run"]
    filled.run(HALF, len(ENTRIES))
    (whole := Filled(tmp_path / "whole")).source.parent.mkdir()
    whole.run(0, len(ENTRIES))
    assert gold_of(filled.lake) == gold_of(whole.lake)


@pytest.mark.parametrize("writes", [0, 1])
def test_no_batch_is_forgotten_by_two_that_maintain_at_once(
    writes: int, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, with newer batches, does all of it right before or after a file is written."""
    for begin in range(0, 40, 10):
        filled.run(begin, begin + 10)
    left = [filled]

    def puts(*args: Any) -> None:
        others = [left.pop()] if left else []
        if writes:
            put_json(*args)
        for other in others:
            for begin in (45, 50, 55):
                other.run(begin, begin + 5)
            maintain(other.lake)
        if not writes:
            put_json(*args)

    monkeypatch.setattr(maintains, "put_json", puts)
    maintain(filled.lake)
    maintain(filled.lake)
    runs = query.ask(filled.lake, "select batch, lost from runs order by batch")
    assert [(r["batch"], r["lost"]) for r in runs] == [(n, 5 * (n == 4)) for n in range(7)]
    assert len(filled.lake.packed) == 1


@pytest.mark.parametrize("layer", ["silver", "bronze", "gold"])
def test_a_table_that_another_program_compacts_before_a_batch_is_at_an_end(
    layer: str, filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has died before it made this layer, or before it recorded silver."""
    filled.run(0, HALF)
    real = ingests._silver

    def dies(*args: Any) -> None:
        if layer == "silver":
            real(*args)
        raise Died

    with monkeypatch.context() as patch:
        if layer == "gold":
            patch.setattr(pipeline, "gold_input", dies)
        else:
            patch.setattr(ingests, "_silver", dies)
        with pytest.raises(Died):
            filled.run(HALF, len(ENTRIES))
    for table in [BRONZE] if layer == "bronze" else SILVER_TABLES.values():
        DeltaTable(str(filled.lake.folder(table))).optimize.compact()
    with pytest.raises(Refused, match=r"rows of batch 1, and .* another program has compacted") as refused:
        filled.run(HALF, len(ENTRIES))
    if layer == "gold":
        assert f"Remove {filled.base / 'gold'} and {filled.base / '_carried'}, and run" in str(refused.value)
        shutil.rmtree(filled.base / "gold")
        shutil.rmtree(filled.base / "_carried")
        pipeline.make_gold(SPARK, again := filled.lake)
    else:
        assert f"--from delta://{filled.base} --lake" in str(refused.value)
        pipeline.audit(SPARK, f"delta://{filled.base}", again := Lake.at(tmp_path / "again"))
    (whole := Filled(tmp_path / "whole")).source.parent.mkdir()
    whole.run(0, len(ENTRIES))
    assert gold_of(again) == gold_of(whole.lake)
