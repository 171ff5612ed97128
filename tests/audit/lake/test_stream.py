"""The loop of batches, without Spark: how long it waits, and what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.audit.errors import Refused
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.continuous import Continuous
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_pipeline import played
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.usefixtures("without_spark")
_, ENTRIES = played(3, 40)


def test_a_batch_that_left_records_is_followed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is shared out in proportion, and rounded down: a batch has fewer records than that."""
    sizes = {p: len(ENTRIES) * (p + 3) // 7 for p in range(4)}
    dump([bronze(ENTRIES[:size], p) for p, size in sizes.items()], tmp_path / "in.jsonl")
    lake = Lake.at(tmp_path / "lake")
    job = Continuous(SPARK, f"file://{tmp_path}/in.jsonl", lake, {"max_records": str(sum(sizes.values()) // 2)})
    batches = list[int]()

    def waits(seconds: float) -> bool:
        batches.append(Lake.at(lake.base).last_batch())
        job.stopped.set()
        return True

    monkeypatch.setattr(job.stopped, "wait", waits)
    job.run()
    assert batches == [2], "the last two offsets or so are a batch of their own"


def test_two_records_of_one_offset_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source := tmp_path / "in").mkdir()
    dump([bronze(ENTRIES[:20], 0)], source / "a.jsonl")
    job = Continuous(SPARK, f"file://{source}", Lake.at(tmp_path / "lake"), {})

    def waits(seconds: float) -> bool:
        assert not (source / "b.jsonl").exists(), "it is tried again"
        dump([bronze(ENTRIES[20:40], 0, 20), bronze(ENTRIES[10:11], 0, 25)], source / "b.jsonl")
        return True

    monkeypatch.setattr(job.stopped, "wait", waits)
    with pytest.raises(Refused, match="the offset 25, and they differ"):
        job.run()
