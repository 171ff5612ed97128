"""The continuous audit: it keeps up, it goes on after what passes, and it ends with what does not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.audit.errors import AuditError, Refused
from sidecar.audit.ingest.batch import ingest
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.spark_tasks import numbered
from sidecar.audit.run.continuous import PREFIX, Continuous, Metrics
from sidecar.audit.source.lag import Lag
from sidecar.drill.processes import wait_until
from tests.audit.lake.making import bronze, dump, log
from tests.audit.lake.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.tier("all")


def test_what_passes_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """The audit reads a file again that was incomplete at first."""
    (source := tmp_path / "in").mkdir()
    entries = log(31, 200)
    dump([bronze(entries[:100], 0)], source / "a.jsonl")
    said: list[str] = []
    job = Continuous(spark, f"file://{source}", Lake.at(tmp_path / "lake"), {}, every_s=0.1, say=said.append)

    def on_line(text: str) -> None:
        said.append(text)
        if "100 records" in text and not (source / "b.jsonl").exists():
            (source / "b.jsonl").write_text("{\n")
        elif "tried again" in text:
            dump([bronze(entries[100:], 0, first=100)], source / "b.jsonl")
        elif "batch 1: gold" in text:
            job.stopped.set()

    job.say = on_line
    job.run()
    assert Lake.at(tmp_path / "lake").batch().position == {0: 200}
    assert any("b.jsonl, line 1" in text for text in said)
    assert job.metrics.registry.get_sample_value("group_state_audit_records") == 200
    assert job.metrics.registry.get_sample_value("group_state_audit_up") == 1


def test_a_lake_that_cannot_be_written_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """The audit goes on when a file has stood in the lake's place for a while. Meanwhile the age of missing records
    rises."""
    (source := tmp_path / "in").mkdir()
    dump([bronze(log(31, 60), 0)], source / "a.jsonl")
    lake, away = tmp_path / "lake", tmp_path / "away"
    job = Continuous(spark, f"file://{source}", Lake.at(lake), {}, every_s=0.1)
    ok: list[float | None] = []

    def on_line(text: str) -> None:
        if "gold" in text and not ok:
            lake.rename(away)
            lake.touch()
        elif "tried again" in text:
            ok.append(job.metrics.registry.get_sample_value("group_state_audit_up"))
            lake.unlink()
            away.rename(lake)
            job.stopped.set()

    job.say = on_line
    job.run()
    assert ok == [0] and Lake.at(lake).batch().position == {0: 60}


def no_room(numbers: Iterator[int]) -> Iterator[str]:
    raise OSError(ENOSPC, "No space left on device")
    yield


def test_a_task_for_which_there_is_no_room_is_no_bug(spark: SparkSession) -> None:
    with pytest.raises(AuditError, match="No space left on device"):
        numbered(spark, 1, no_room)


def test_the_age_of_what_is_not_in_the_lake_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a successful batch the lags are not read again, but history is lost all the same."""
    metrics, seconds = Metrics(), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    metrics.set_lag(Lag(0, behind=1, lost=0, age_ms=5_000, allowed_ms=7))
    metrics.set_lag(Lag(1, behind=0, lost=0, age_ms=None, allowed_ms=7))
    seconds = 130.0
    oldest = [metrics.registry.get_sample_value(f"{PREFIX}oldest_seconds", {"partition": p}) for p in ("0", "1")]
    assert oldest == [35, 30]


def test_what_was_lost_is_told_until_the_end(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Records deleted before the first batch are not lost by this audit: they were gone before it began."""
    uri = topics.create("gone", 1, **{"cleanup.policy": "delete", "retention.ms": "-1"})
    entries = log(34, 90)
    topics.write("gone", {0: entries[:30]})
    topics.forget("gone", 0, 10)
    lost: list[float | None] = []
    said: list[str] = []
    job = Continuous(spark, uri, Lake.at(tmp_path / "lake"), {}, every_s=0.1)

    def on_line(text: str) -> None:
        said.append(text)
        found = re.fullmatch(r"batch (\d): gold is up to date", text)
        if found is None:
            return
        lost.append(job.metrics.registry.get_sample_value("group_state_audit_lost_records"))
        if found[1] == "0":
            topics.write("gone", {0: entries[30:60]})
            topics.forget("gone", 0, 50)
        elif found[1] == "1":
            topics.write("gone", {0: entries[60:]})
        else:
            job.stopped.set()

    job.say = on_line
    job.run()
    assert "partition 0: 20 offsets were gone before they were read" in said
    assert lost[:2] == [0, 20] and (lost[2] or 0) >= 20, "these records have gaps in their revisions, too"
    assert (job.metrics.registry.get_sample_value("group_state_audit_lost_records") or 0) >= 20


def test_the_first_failure_ends_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="does not exist"):
        Continuous(spark, f"file://{tmp_path}/none", Lake.at(tmp_path / "lake"), {}).run()


def test_a_topic_that_was_made_anew_ends_it(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    uri = topics.create("anew", 1)
    topics.write("anew", {0: log(32, 60)})

    def on_line(text: str) -> None:
        if "gold" in text:
            topics.delete("anew")
            topics.create("anew", 1)

    with pytest.raises(Refused, match="re-created"):
        Continuous(spark, uri, Lake.at(tmp_path / "lake"), {}, every_s=0.1, say=on_line).run()


def test_the_command_keeps_up_tells_prometheus_and_stops_when_asked(topics: Topics, tmp_path: Path) -> None:
    uri = topics.create("live", 2)
    entries = log(33, 120)
    topics.write("live", {0: entries[:60]})
    command = [
        sys.executable,
        "-m",
        "sidecar.cli.main",
        "audit",
        "stream",
        "--from",
        uri,
        "--lake",
        str(tmp_path / "lake"),
    ]
    more = ["--from", uri, "--lake", str(tmp_path / "lake"), "--every", "0.5", "--metrics", "127.0.0.1:0"]
    p = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)
    assert p.stderr is not None
    lines: list[str] = []
    timer = threading.Timer(200, p.kill)
    timer.start()
    try:
        port = _until(p, lines, r"metrics at port (\d+)")
        _until(p, lines, "batch 0: gold is up to date")
        topics.write("live", {0: entries[60:]})
        _until(p, lines, "batch 1: 60 records")
        _until(p, lines, "batch 1: gold is up to date")
        while 'lag_records{partition="0"} 0' not in (told := _scrape(port)) or "audit_records 120" not in told:
            assert p.poll() is None
        assert "group_state_audit_up 1" in told
        p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0
        assert "stopped" in p.stderr.read()
    finally:
        timer.cancel()
        p.kill()
        p.wait()


def _until(p: subprocess.Popen[str], lines: list[str], pattern: str) -> str:
    """Waits for a line that matches; returns the pattern's first group."""
    assert p.stderr is not None
    for line in p.stderr:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[found.lastindex or 0]
    raise AssertionError("".join(lines))


def _scrape(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def metric(job: Continuous, name: str, **labels: str) -> float:
    found = job.metrics.registry.get_sample_value(f"group_state_audit_{name}", labels)
    assert found is not None, name
    return found


def test_what_lags_is_told_before_a_batch_and_when_it_fails(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = topics.create("lags", 1)
    topics.write("lags", {0: log(51, 40)})
    seen = list[tuple[float, float]]()
    job = Continuous(spark, uri, Lake.at(tmp_path / "lake"), {}, every_s=0.1)

    def fails(*args: Any) -> Any:
        seen.append((metric(job, "lag_records", partition="0"), metric(job, "oldest_seconds", partition="0")))
        raise AuditError("no room on the disk")

    monkeypatch.setattr("sidecar.audit.run.continuous.audit", fails)
    with pytest.raises(AuditError, match="no room"):
        job._once()
    assert seen[0][0] == 40 and seen[0][1] > 1e6
    wait_until("the age goes on growing", lambda: metric(job, "oldest_seconds", partition="0") > seen[0][1], 10)


def test_it_waits_for_a_topic_that_is_not_there_yet(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    uri, said = f"kafka://{topics.bootstrap}/later", list[str]()
    with pytest.raises(AuditError, match="no such topic"):
        ingest(spark, uri, Lake.at(tmp_path / "other"))

    def on_line(text: str) -> None:
        said.append(text)
        if "waits until it is there" in text:
            topics.create("later", 1)
            topics.write("later", {0: log(52, 20)})
        elif "gold" in text:
            job.stopped.set()

    job = Continuous(spark, uri, Lake.at(tmp_path / "lake"), {}, every_s=0.2, say=on_line)
    job.run()
    assert len([text for text in said if "waits" in text]) == 1
    assert metric(job, "records") == 20
