"""Two runs, two maintenances, and another program that compacts a table: nothing is lost, or the audit refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.lake.lake import Lake
from sidecar.audit.run import pipeline
from sidecar.audit.source.uri import dump
from tests.audit.lake.making import T0, bronze
from tests.audit.lake.test_killed import Died
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.usefixtures("without_spark")
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
    """It begins after the first has folded, and dies before it has folded itself."""
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
