"""Streams of Spark's own over the data source: intervals, crashes, data that is gone, a topic that was made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from sidecar.audit import ingest as ingests
from sidecar.audit.continuous import Continuous
from sidecar.audit.errors import AuditError
from sidecar.audit.ingest import ingest, last_batch, stream
from sidecar.audit.lake import Lake
from sidecar.drill.processes import wait_until
from tests.audit.lake.making import log
from tests.audit.lake.test_ingest import only_once
from tests.audit.lake.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.tier("all")
BOTH = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


def ended(query: Any) -> str:
    """What a query says that has failed."""
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(120)
        raise AssertionError("it has not ended")
    return str(failed.value)


def test_at_intervals(topics: Topics, spark: SparkSession, lake_folder: Path, tmp_path: Path) -> None:
    uri, lake, entries = topics.create("interval", 2), Lake.at(lake_folder), log(41, 200)
    topics.write("interval", {0: entries[:100]})
    query = stream(spark, uri, lake, tmp_path / "checkpoint", interval="1 second")
    try:
        for count in (100, 150, 200):
            wait_until(f"{count} records", lambda n=count: sum(last_batch(lake).position.values()) == n, 120)  # type: ignore[misc]
            assert query.isActive and only_once(lake) == count
            topics.write("interval", {0: entries[count : count + 50]})
    finally:
        query.stop()


@pytest.mark.parametrize("where", ["after the plan", "after bronze", "before the record"])
def test_an_epoch_that_was_broken_off_is_done_again(
    where: str, topics: Topics, spark: SparkSession, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = where.replace(" ", "-")
    uri, lake = topics.create(name, 1), Lake.at(lake_folder)
    topics.write(name, {0: log(42, 120)})
    steps = {"after the plan": "run_plan", "after bronze": "_silver", "before the record": "asdict"}

    def dies(*args: Any, **kw: Any) -> Any:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        real: Callable[..., Any] = getattr(ingests, steps[where])
        # A plan is made with the same function as the record.
        kept = iter([real]) if where == "before the record" else iter(())
        patch.setattr(ingests, steps[where], lambda *a, **kw: next(kept, dies)(*a, **kw))
        assert "killed here" in ended(stream(spark, uri, lake, tmp_path / "checkpoint"))
    assert lake.last_batch() == -1 and lake.batch(0, plan=True) is not None
    with pytest.raises(AuditError, match="begun by the stream"):
        ingest(spark, uri, lake)
    topics.write(name, {0: log(43, 30)})
    stream(spark, uri, lake, tmp_path / "checkpoint").awaitTermination()
    first = lake.batch(0)
    assert first is not None and first["counts"]["records"] == 120, "the very same records"
    assert only_once(lake) == 150


def test_data_that_is_gone_ends_it_unless_that_is_allowed(
    topics: Topics, spark: SparkSession, lake_folder: Path, tmp_path: Path
) -> None:
    uri, lake = topics.create("deleted", 1, **BOTH), Lake.at(lake_folder)
    topics.write("deleted", {0: log(44, 100)})
    stream(spark, uri, lake, tmp_path / "checkpoint").awaitTermination()
    topics.write("deleted", {0: log(45, 100)})
    topics.forget("deleted", 0, 150)
    said = ended(stream(spark, uri, lake, tmp_path / "checkpoint"))
    assert "begins at 150, but 100 was to be read next" in said, said
    assert only_once(lake) == 100
    allowed = {"fail_on_data_loss": "false"}
    stream(spark, uri, lake, tmp_path / "checkpoint", allowed).awaitTermination()
    assert only_once(lake) == 150 and last_batch(lake).lost == {0: (100, 150)}


def test_a_topic_that_was_made_anew_is_refused(
    topics: Topics, spark: SparkSession, lake_folder: Path, tmp_path: Path
) -> None:
    uri, lake = topics.create("renewed", 1), Lake.at(lake_folder)
    topics.write("renewed", {0: log(46, 60)})
    stream(spark, uri, lake, tmp_path / "checkpoint").awaitTermination()
    topics.delete("renewed")
    topics.create("renewed", 1)
    topics.write("renewed", {0: log(47, 90)})
    assert "was re-created: begin with a new checkpoint" in ended(stream(spark, uri, lake, tmp_path / "checkpoint"))
    # One with a checkpoint of its own would find nothing wrong, but the lake does.
    anew = stream(spark, uri, lake, tmp_path / "other", {"starting_offsets": "earliest"})
    assert "run an ingest with new_incarnation" in ended(anew)
    assert only_once(lake) == 60


def told(job: Continuous, name: str, **labels: str) -> float:
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
        seen.append((told(job, "lag_records", partition="0"), told(job, "oldest_seconds", partition="0")))
        raise AuditError("no room on the disk")

    monkeypatch.setattr("sidecar.audit.continuous.audit", fails)
    with pytest.raises(AuditError, match="no room"):
        job._once()
    assert seen[0][0] == 40 and seen[0][1] > 1e6
    wait_until("the age goes on growing", lambda: told(job, "oldest_seconds", partition="0") > seen[0][1], 10)


def test_it_waits_for_a_topic_that_is_not_there_yet(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    uri, said = f"kafka://{topics.bootstrap}/later", list[str]()
    with pytest.raises(AuditError, match="no such topic"):
        ingest(spark, uri, Lake.at(tmp_path / "other"))

    def say(text: str) -> None:
        said.append(text)
        if "waits until it is there" in text:
            topics.create("later", 1)
            topics.write("later", {0: log(52, 20)})
        elif "gold" in text:
            job.stopped.set()

    job = Continuous(spark, uri, Lake.at(tmp_path / "lake"), {}, every_s=0.2, say=say)
    job.run()
    assert len([text for text in said if "waits" in text]) == 1
    assert told(job, "records") == 20
