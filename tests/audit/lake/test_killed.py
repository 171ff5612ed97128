"""A process that dies anywhere in the middle of a batch loses nothing and doubles nothing.

`KILL_ROUNDS=20 pytest tests/audit/lake/test_killed.py` kills real processes more often.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from sidecar.audit.ingest import batch as ingests
from sidecar.audit.ingest.batch import ingest
from sidecar.audit.lake import delta as lake_delta
from sidecar.audit.lake.files import TableWriter, batch_name
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run import pipeline
from sidecar.audit.run.maintain import maintain
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES
from tests.audit.lake.conftest import rows
from tests.audit.lake.making import bronze, dump, log
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.tier("all")

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
STRIDE = 41
"""One step of so many is tried, others in each run."""
TABLES = [BRONZE, *SILVER_TABLES.values()]
MOST = "300"


def contents(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    return {t.name: rows(lake.read_arrow(t)) for t in TABLES}


class Died(BaseException):
    pass


class Steps:
    """Counts what changes anything on disk, and dies before or after one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self._wrap(monkeypatch, ingests, "put_json")
        self._wrap(monkeypatch, pipeline, "put_json")
        self._wrap(monkeypatch, shutil, "rmtree")
        self._wrap(monkeypatch, DeltaTable, "create_write_transaction")
        self._wrap(monkeypatch, TableWriter, "write")
        self._wrap(monkeypatch, TableWriter, "close")

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def step(*args: Any, **kw: Any) -> Any:
            self.step()
            found = real(*args, **kw)
            self.step()
            return found

        monkeypatch.setattr(owner, name, step)

    def step(self) -> None:
        if self.left == 0:
            self.left = -1
            raise Died
        self.left -= 1


@pytest.mark.usefixtures("without_spark")
def test_death_before_and_after_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    dump([bronze(log(1, 120), 0), bronze(log(2, 60), 1)], tmp_path / "in" / "a.jsonl")
    dump([bronze(log(3, 60), 1, first=60)], tmp_path / "in" / "b.jsonl")
    source = f"file://{tmp_path}/in"
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # the machine does not die here

    def fill(lake: Lake) -> None:
        while ingest(SPARK, source, lake, {"max_records": "150"}).new:
            pass

    fill(whole := Lake.at(tmp_path / "whole"))
    wanted, steps, deaths = contents(whole), Steps(monkeypatch), 0
    assert len(wanted["records"]) == 240
    for k in range(random.randrange(STRIDE), 10_000, STRIDE):
        lake = Lake.at(tmp_path / str(k))
        steps.left = k
        try:
            fill(lake)
        except Died:
            deaths += 1
        else:
            break
        steps.left = -1
        for found in contents(lake).values():  # never doubled, not even for a moment
            assert len(found) == len({(r["state_partition"], r["offset"]) for r in found})
        fill(lake)
        assert contents(lake) == wanted, f"step {k}"
    assert deaths > 3


@pytest.mark.usefixtures("without_spark")
def test_death_at_any_step_of_gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, entries = played(6, 60)
    dump([bronze(entries, 0)], tmp_path / "all.jsonl")
    source: Any = f"file://{tmp_path}/all.jsonl"
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    options = {"max_records": str(len(entries) // 2 + 1), "rows_per_task": "100"}

    def fill(lake: Lake) -> None:
        while pipeline.to_do(source, lake, options):
            pipeline.audit(SPARK, source, lake, options)

    fill(whole := Lake.at(tmp_path / "whole"))
    wanted, steps, deaths = gold_of(whole), Steps(monkeypatch), 0
    assert whole.last_batch() == 1 and wanted["intervals"] and wanted["rebalances"]
    filled = Lake.at(tmp_path / "filled")
    while ingest(SPARK, source, filled, options).new:
        pass
    for k in range(random.randrange(STRIDE), 10_000, STRIDE):
        shutil.copytree(filled.base, tmp_path / str(k))
        lake = Lake.at(tmp_path / str(k))
        steps.left = k
        try:
            pipeline.make_gold(SPARK, lake, options=options)
        except Died:
            deaths += 1
        else:
            break
        steps.left = -1
        pipeline.make_gold(SPARK, lake, options=options)
        assert gold_of(lake) == wanted, f"step {k}"
    assert deaths > 3


@pytest.mark.usefixtures("without_spark")
def test_a_batch_that_is_not_committed_is_not_seen_and_is_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump([bronze(log(1, 120), 0)], tmp_path / "a.jsonl")
    lake = Lake.at(tmp_path / "lake")
    with monkeypatch.context() as m:

        def raise_died(*args: Any) -> bool:
            raise Died

        m.setattr(lake_delta.DeltaTables, "commit", raise_died)
        with pytest.raises(Died):
            ingest(SPARK, f"file://{tmp_path}/a.jsonl", lake)
    assert list(tmp_path.rglob("lake/bronze/**/*.parquet")) and not lake.files(BRONZE)
    pipeline.audit(SPARK, f"file://{tmp_path}/a.jsonl", lake)
    maintain(lake, hours=0)
    seen = {f.path for t in (*TABLES, *GOLD.values()) for f in lake.files(t)}
    left = {str(p) for p in tmp_path.rglob("lake/**/*.parquet") if not {"_carried", "_delta_log"} & set(p.parts)}
    assert left == seen


# ---- real processes -------------------------------------------------------------------------------------------------
def start(source: str, lake: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.audit.lake.killed", source, str(lake), "2500"]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert p.stdout is not None
    line = p.stdout.readline()
    assert line == "ready\n", line
    return p


def workers(p: subprocess.Popen[str]) -> list[psutil.Process]:
    """The Python workers of its Spark that are at work: forks of the daemon."""
    try:
        daemons = [
            c for c in psutil.Process(p.pid).children(recursive=True) if "pyspark.daemon" in " ".join(c.cmdline())
        ]
        return [c for c in daemons if c.ppid() in {d.pid for d in daemons}]
    except psutil.NoSuchProcess:
        return []


def wait_for_exit(processes: list[psutil.Process]) -> None:
    """A JVM ends when its driver has died."""
    psutil.wait_procs(processes, timeout=60)


def in_the_middle(folder: Path) -> bool:
    """Returns whether a batch is half done: bronze has an unrecorded file of it, or gold does not have it yet."""
    lake = Lake.at(folder)
    n = lake.last_batch()
    begun = any(folder.glob(f"bronze/records/day=*/*/{batch_name(n + 1)}*"))
    return begun or (n >= 0 and lake.done(GOLD.values()) < n)


PARTS, EACH = 4, 2_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("source")
    for q in range(PARTS):
        entries = played(20 + q, 2_500)[1][:EACH]
        assert len(entries) == EACH
        dump([bronze(entries, q)], folder / f"{q}.jsonl")
    return f"file://{folder}"


@pytest.fixture(scope="module")
def whole(source: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Gold of one run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "lake"
    p = start(source, folder)
    p.communicate(timeout=240)
    assert p.returncode == 0
    return gold_of(Lake.at(folder))


def nothing_is_lost_or_doubled(folder: Path, whole: dict[str, list[dict[str, Any]]]) -> None:
    found = contents(Lake.at(folder))
    places = [(row["state_partition"], row["offset"]) for row in found["records"]]
    assert places == [(q, o) for q in range(PARTS) for o in range(EACH)]
    silver = sorted((row["state_partition"], row["offset"]) for n in SILVER_TABLES for row in found[n])
    assert silver == places
    assert gold_of(Lake.at(folder)) == whole


@pytest.mark.tier("nightly")
@pytest.mark.timeout(3000)
def test_kill_9_of_drivers(source: str, whole: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    """Each is killed in the middle of a batch. Those that had ended a batch just then do not count."""
    r, killed, lakes = random.Random(time.time_ns()), 0, 0
    while killed < ROUNDS:
        lakes += 1
        lake, ended = tmp_path / str(lakes), False
        while not ended:
            p = start(source, lake)
            family = psutil.Process(p.pid).children(recursive=True)
            until = time.monotonic() + r.uniform(0, 4)
            while p.poll() is None and (killed == ROUNDS or time.monotonic() < until or not in_the_middle(lake)):
                time.sleep(0.02)
            p.kill()
            ended = p.wait() == 0
            wait_for_exit(family)
            killed += not ended and in_the_middle(lake)
        nothing_is_lost_or_doubled(lake, whole)
    print(f"{killed} drivers were killed in the middle of a batch, over {lakes} lakes")
    assert killed == ROUNDS


@pytest.mark.tier("nightly")
@pytest.mark.timeout(3000)
def test_kill_9_of_workers(source: str, whole: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    """The tasks are tried again, and the same driver ends the batch."""
    r, killed, lakes = random.Random(time.time_ns()), 0, 0
    while killed < ROUNDS:
        lakes += 1
        lake, failed = tmp_path / str(lakes), 0
        p = start(source, lake)
        assert p.stdout is not None
        while p.poll() is None:
            if killed < ROUNDS:
                until = time.monotonic() + r.uniform(0, 1.5)
                while p.poll() is None and (time.monotonic() < until or not (in_the_middle(lake) and workers(p))):
                    time.sleep(0.01)
                for w in workers(p):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        w.send_signal(signal.SIGKILL)
            said = p.stdout.readline().split()
            if said:
                assert said[0] == "done"
                killed, failed = killed + (int(said[2]) > failed), int(said[2])
        assert p.wait() == 0, "a driver has given up"
        nothing_is_lost_or_doubled(lake, whole)
    print(f"in {killed} batches tasks lost their workers and were tried again, over {lakes} lakes")
    assert killed >= ROUNDS
