"""On a cluster of several workers the audit gives the same tables, and the driver has none of the records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.audit.ask import query
from sidecar.audit.lake.lake import Lake
from tests.audit.lake.standalone import cluster
from tests.audit.lake.test_pipeline import dump, gold_of, played

pytestmark = pytest.mark.tier("nightly")


def audited(source: Path, lake: Path, master: str) -> Lake:
    """By the command, in a process of its own."""
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master {master} --executor-memory 600m pyspark-shell"}
    words = [
        "audit",
        "run",
        "--from",
        f"file://{source}",
        "--lake",
        str(lake),
        "-O",
        "records_per_task=40",
        "-O",
        "rows_per_task=40",
        "-o",
        "json",
    ]
    command = [sys.executable, "-m", "sidecar.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["complete"]
    return Lake.at(lake)


def test_two_workers_make_the_same_tables_as_one_machine(tmp_path: Path) -> None:
    _, entries = played(4, 200)
    dump(tmp_path / "all", entries)
    lines = (tmp_path / "all").read_text().splitlines(keepends=True)
    source = tmp_path / "dump"
    source.mkdir()
    for n in range(4):  # a task for each
        (source / f"{n}.jsonl").write_text("".join(lines[n::4]))
    with cluster(tmp_path / "spark", workers=2) as master:
        spread = audited(source, tmp_path / "spread", master)
    alone = audited(source, tmp_path / "alone", "local[2]")
    told = gold_of(spread)
    assert told == gold_of(alone) and told["intervals"] and query.broken(spread) == {}
    for n in range(2):
        (said,) = (tmp_path / "spark" / f"worker-{n}").glob("app-*/*/stderr")
        assert "Finished task" in said.read_text(), f"worker {n} has done nothing"
