"""Maintenance of a lake: fewer files, the same rows; killed at any point, nothing is lost and nothing is doubled."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer

from sidecar.audit.ask import query
from sidecar.audit.errors import AuditError
from sidecar.audit.ingest import batch as ingests
from sidecar.audit.lake import delta as lake_delta
from sidecar.audit.lake import lake as lakes
from sidecar.audit.lake import storage as lake_storage
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import Folder
from sidecar.audit.run import maintain as maintains
from sidecar.audit.run import pipeline
from sidecar.audit.run.continuous import Continuous
from sidecar.audit.run.maintain import TABLES, maintain
from sidecar.audit.run.verdict import Verdict, verdict
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE
from sidecar.drill.processes import wait_until
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_killed import Died, Steps, contents
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK, run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.tier("all"), pytest.mark.usefixtures("without_spark")]

BATCHES = 6
ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
STRIDE = 61
Whole = tuple[dict[str, Any], dict[str, Any], Verdict]
"""Bronze and silver, gold, and what is said of it."""
Undisturbed = Callable[[int], Whole]


def contents_and_verdict(lake: Lake) -> dict[str, Any]:
    """All tables of the lake, and the verdict."""
    runs = query.ask(lake, "select * from runs order by batch")
    return {"records": contents(lake), "gold": gold_of(lake), "runs": runs, "verdict": verdict(lake)}


def files_of(lake: Lake) -> int:
    return sum(1 for p in Path(lake.base).rglob("*") if p.is_file())


def listed(lake: Lake) -> int:
    return sum(len(lake.files(t)) for t in TABLES)


def batches(lake: Lake, folder: Path, upto: int = BATCHES, most: int = 20) -> None:
    """Runs the audit until the lake has `upto` batches of a longer dump."""
    while lake.last_batch() + 1 < upto:
        pipeline.audit(SPARK, f"file://{folder}/all.jsonl", lake, {"max_records": str(most)})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    # Two state partitions, and a day that ends within.
    dump(
        [bronze(played(6 + p, 120)[1][:300], p, ms=1_760_000_000_000 + (p << 27)) for p in (0, 1)], folder / "all.jsonl"
    )
    return folder


@pytest.fixture(scope="module")
def filled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Returns a lake of several batches."""
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        lake = Lake.at(tmp_path_factory.mktemp("filled") / "lake")
        batches(lake, source)
    return lake


@pytest.fixture(scope="module")
def undisturbed(filled: Lake, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Returns a function: number of batches -> contents of a lake without maintenance."""
    lake = copied(filled, tmp_path_factory.mktemp("undisturbed") / "lake")
    known: dict[int, Whole] = {}

    def after(count: int) -> Whole:
        for done in range(lake.last_batch() + 1, count + 1):
            batches(lake, source, done)
            known[done] = contents(lake), gold_of(lake), verdict(lake)
        return known[count]

    return after


def copied(lake: Lake, to: Path) -> Lake:
    shutil.copytree(lake.base, to)
    return Lake.at(to)


def test_the_same_rows_in_fewer_files(
    filled: Lake,
    source: Path,
    tmp_path: Path,
    spark: SparkSession,
    undisturbed: Undisturbed,
) -> None:
    lake = copied(filled, tmp_path / "lake")
    wanted, before = contents_and_verdict(lake), (files_of(lake), listed(lake))
    reader = [f.path for f in lake.files(BRONZE)]
    maintain(lake)
    assert contents_and_verdict(lake) == wanted
    assert all(Path(p).exists() for p in reader), "who has begun to read goes on with what was replaced"
    assert len(lake.files(BRONZE)) == len({f.partition for f in lake.files(BRONZE)}), "one file for each folder"
    done = maintain(lake, hours=0)
    assert done.merged == 0 and done.removed > 0 and done.packed == 0
    assert contents_and_verdict(lake) == wanted and query.broken(lake) == {}
    assert not any(Path(p).exists() for p in reader)
    after = (files_of(lake), listed(lake))
    print(f"{BATCHES} batches: files {before[0]} -> {after[0]}, of them read {before[1]} -> {after[1]}")
    assert after[1] * 2 < before[1]
    for name in ("intervals", "coverage"):
        assert lake.read(spark, GOLD[name]).count() == len(wanted["gold"][name]), "Spark reads it as well"
    assert lake.read(spark, BRONZE).count() == len(wanted["records"]["records"])
    batches(lake, source, BATCHES + 2)
    maintain(lake, hours=0)
    batches(lake, source, BATCHES + 3)
    assert (contents(lake), gold_of(lake)) == undisturbed(BATCHES + 3)[:2]
    assert [r["batch"] for r in query.ask(lake, "select batch from runs order by 1")] == list(range(BATCHES + 3))


def test_what_gold_still_has_to_take_is_left_as_it_is(
    filled: Lake, source: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    lake = copied(filled, tmp_path / "lake")
    for _ in range(3):
        ingests.ingest(SPARK, f"file://{source}/all.jsonl", lake, {"max_records": "20"})
    maintain(lake, hours=0)
    pipeline.make_gold(SPARK, lake)
    assert gold_of(lake) == undisturbed(BATCHES + 3)[1]


def test_death_before_and_after_every_step(filled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, steps, deaths = contents_and_verdict(filled), Steps(monkeypatch), 0
    for owner, name in ((maintains, "put_json"), (Path, "unlink"), (TableOptimizer, "compact")):
        steps._wrap(monkeypatch, owner, name)
    steps._wrap(monkeypatch, DeltaTable, "vacuum")
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # the machine does not die here
    for k in range(random.randrange(STRIDE), 100_000, STRIDE):
        lake = copied(filled, tmp_path / "lake")
        steps.left = k
        try:
            maintain(lake, hours=0)
        except Died:
            deaths += 1
        else:
            break
        steps.left = -1
        assert contents_and_verdict(lake) == wanted, f"step {k}"
        maintain(lake, hours=0)
        assert contents_and_verdict(lake) == wanted, f"step {k}"
        shutil.rmtree(lake.base)
    print(f"died at {deaths} steps")
    assert deaths > 3


def merged(lake: Lake) -> int:
    """Returns the number of files of Delta's own compaction."""
    return sum(name.startswith("part-") for _, _, names in os.walk(lake.base) for name in names)


@pytest.mark.tier("nightly")
def test_kill_9_in_the_middle(filled: Lake, tmp_path: Path) -> None:
    wanted, r = contents_and_verdict(filled), random.Random(time.time_ns())
    for n in range(ROUNDS):
        lake = copied(filled, tmp_path / str(n))
        command = [sys.executable, "-m", "sidecar.cli.main", "audit", "maintain", "--lake", str(lake.base)]
        some = r.randrange(1, 9)
        with subprocess.Popen([*command, "--retention", "0"], stdout=subprocess.DEVNULL) as p:
            while merged(lake) < some:
                assert p.poll() is None, "it has ended before it could be killed"
            p.kill()
            assert p.wait() == -signal.SIGKILL
        assert contents_and_verdict(lake) == wanted
        maintain(lake, hours=0)
        assert contents_and_verdict(lake) == wanted and len(lake.files(BRONZE)) == len(
            {f.partition for f in lake.files(BRONZE)}
        )


def test_batches_go_on_meanwhile(filled: Lake, source: Path, tmp_path: Path, undisturbed: Undisturbed) -> None:
    lake, ended, rounds = copied(filled, tmp_path / "lake"), threading.Event(), 0

    def over_and_over() -> None:
        nonlocal rounds
        while not ended.is_set():
            maintain(Lake.at(lake.base), hours=1)
            rounds += 1

    thread = threading.Thread(target=over_and_over)
    thread.start()
    try:
        batches(lake, source, BATCHES + 3)
        wait_until("two rounds", lambda: rounds > 1, 60)
    finally:
        ended.set()
        thread.join()
    assert (contents(lake), gold_of(lake)) == undisturbed(BATCHES + 3)[:2]


def test_batches_are_listed_meanwhile(filled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, wanted, read = copied(filled, tmp_path / "lake"), filled.batches(), list[Folder]()

    def read_later(path: Folder) -> Any:
        read.append(path)
        if len(read) == 1:
            assert maintain(Lake.at(lake.base), hours=0).packed > 1
        return lake_storage.read_json(path)

    monkeypatch.setattr(lakes, "read_json", read_later)
    assert [b.counts for b in lake.batches()] == [b.counts for b in wanted]
    assert not read[0].is_file()


def test_gold_is_made_anew_of_batches_that_were_put_together(
    filled: Lake,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Undisturbed,
) -> None:
    """As another version of this program asks for it. Whoever dies in the middle of it is followed by the same."""
    lake = copied(filled, tmp_path / "lake")
    maintain(lake, hours=0)
    wanted, steps = contents_and_verdict(lake), Steps(monkeypatch)
    for kept in (True, False):
        shutil.rmtree(lake.root / "gold")
        if not kept:
            shutil.rmtree(lake.root / "_carried")
        steps.left = random.randrange(20, 90)
        with pytest.raises(Died):
            pipeline.make_gold(SPARK, lake)
        steps.left = -1
        batches(lake, source, BATCHES + 1)
        assert (gold_of(lake), verdict(lake)) == undisturbed(BATCHES + 1)[1:]
        assert query.broken(lake) == {}
        shutil.rmtree(lake.base)
        lake = copied(filled, Path(lake.base))
        maintain(lake, hours=0)
        assert contents_and_verdict(lake) == wanted


PARTS = [(0, 120), (150, 200), (200, 240), (290, 340)]
"""Between the first two, and between the last two, offsets are gone."""


@pytest.mark.parametrize("first", [0, 5_000])
def test_what_was_lost_or_never_read_stays_told(first: int, tmp_path: Path) -> None:
    entries = played(6, 300)[1][:345]
    assert len(entries) == 345
    kept, whole = Lake.at(tmp_path / "lake"), Lake.at(tmp_path / "whole")
    for begin, end in PARTS:
        dump([bronze(entries[begin:end], 0, first + begin)], tmp_path / "a.jsonl")
        for lake in (kept, whole):
            pipeline.audit(SPARK, f"file://{tmp_path}/a.jsonl", lake)
        maintain(kept, hours=0)
        one, other = contents_and_verdict(kept), contents_and_verdict(whole)
        for row in (*one["runs"], *other["runs"]):
            del row["done_ms"], row["done_time"]
        assert one == other
    assert kept.packed
    found = verdict(kept).completeness
    assert (found.lost, found.not_read) == (80, first) and not found.complete
    assert sum(r["lost"] for r in query.ask(kept, "select lost from runs")) == 80 + first
    refused = rf"Fill another lake from this one: .*--from delta://{kept.base} "
    dump([bronze(entries[340:345], 0, first + 340)], tmp_path / "a.jsonl")
    next(Path(kept.root).rglob("files.json")).write_text('{"version": 0}')
    with pytest.raises(AuditError, match=refused):
        pipeline.audit(SPARK, f"file://{tmp_path}/a.jsonl", kept)
    shutil.rmtree(kept.root / "gold")
    with pytest.raises(AuditError, match=refused):
        pipeline.make_gold(SPARK, kept)


def test_a_stream_that_finds_nothing_new_maintains_nothing(
    filled: Lake, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, seen = list[int](), list[float | None]()
    lake = copied(filled, tmp_path / "lake")
    monkeypatch.setattr("sidecar.audit.run.continuous.maintain", lambda lake: done.append(lake.last_batch()))
    while pipeline.to_do(f"file://{source}/all.jsonl", lake):
        batches(lake, source, lake.last_batch() + 2, 300)
    end, wanted = lake.last_batch(), verdict(lake)
    job = Continuous(SPARK, f"file://{source}/all.jsonl", lake, {}, every_s=0.1, maintain_every=end + 1)

    def waits(s: float) -> bool:
        seen.append(job.metrics.registry.get_sample_value("group_state_audit_records"))
        if len(seen) == 3:
            job.stopped.set()
        return True

    monkeypatch.setattr(job.stopped, "wait", waits)
    job.run()
    assert done == [] and seen == [wanted.records] * 3 and lake.last_batch() == end


def test_a_batch_reads_only_the_last_records_of_those_before(
    filled: Lake, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied(filled, tmp_path / "lake")
    maintain(lake)
    read, real = list[str](), lake_storage.read_json

    def counted(path: Path) -> Any:
        read.append(path.name)
        return real(path)

    for where in ("lake.lake", "ingest.batch"):
        monkeypatch.setattr(f"sidecar.audit.{where}.read_json", counted)
    batches(lake, source, BATCHES + 1)
    verdict(lake)
    assert {name[:8] for name in read if name[:8].isdigit()} == {f"{n:08d}" for n in (BATCHES - 1, BATCHES)}


def test_a_batch_does_not_read_every_entry_of_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is opened once; who opens it begins with Delta's last checkpoint."""
    lake, other = Lake.at(tmp_path / "lake"), Lake.at(tmp_path / "lake")
    log, opened, real = tmp_path / "lake" / "bronze" / "records" / "_delta_log", list[Folder](), lake_delta._open

    def counted(folder: Folder) -> Any:
        opened.append(folder)
        return real(folder)

    monkeypatch.setattr(lake_delta, "_open", counted)
    lake.setup([BRONZE])
    opened.clear()
    for n in range(105):
        assert lake.commit(lake.target(BRONZE, n), [], n) and not lake.commit(lake.target(BRONZE, n), [], n)
        assert lake.committed(BRONZE) == other.committed(BRONZE) == n, "what is open is up to date"
    assert len(opened) <= 2
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    shutil.rmtree(log.parent)
    assert Lake.at(tmp_path / "lake").commit(lake.target(BRONZE, 0), [], 0)
    assert lake.committed(BRONZE) == other.committed(BRONZE) == 0, "nor is it one that is gone"
