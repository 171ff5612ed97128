"""Streams of Spark over the data source: they go on where they ended, and end if records are gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from sidecar.audit.source.records import GroupStateRecords
from sidecar.drill.processes import wait_until
from tests.audit.lake.making import T0, log
from tests.audit.lake.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.tier("all")
BOTH = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


class Copy:
    """A copy of a topic as Parquet files, made by a query with a checkpoint."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path, **options: str) -> None:
        self.spark, self.folder = spark, folder
        self.rows = spark.readStream.format(GroupStateRecords.name()).options(uri=uri, **options).load()

    def start(self, checkpoint: str = "checkpoint", **trigger: Any) -> Any:
        writer = self.rows.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        return writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(**trigger).start()

    def copy_available(self) -> int:
        """Copies the records that are there now. Returns the number of batches."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return sum(1 for p in query.recentProgress if p.numInputRows)

    def why_it_ends(self, checkpoint: str = "checkpoint") -> str:
        with pytest.raises(StreamingQueryException) as failed:
            self.start(checkpoint, availableNow=True).awaitTermination(120)
            raise AssertionError("it has not ended")
        return str(failed.value)

    def count(self) -> int:
        """Each record is there once."""
        found = self.spark.read.parquet(str(self.folder / "rows")).select("state_partition", "offset").collect()
        assert len(found) == len(set(found))
        return len(found)


def test_it_goes_on_where_it_ended(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    uri, entries = topics.create("stream", 2), log(7, 600)
    topics.write("stream", {0: entries[:300], 1: entries[300:350]})
    for count in (350, 600):
        assert Copy(spark, uri, tmp_path, max_records="150").copy_available() > 1
        assert Copy(spark, uri, tmp_path).count() == count
        topics.write("stream", {0: entries[350:]}, T0 + 350)


def test_at_intervals(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    uri, entries = topics.create("interval", 1), log(41, 200)
    topics.write("interval", {0: entries[:100]})
    copy = Copy(spark, uri, tmp_path)
    query = copy.start(processingTime="1 second")

    def read() -> int:
        return sum(int(p.numInputRows) for p in query.recentProgress)

    try:
        for count in (100, 150, 200):
            wait_until(f"{count} records", lambda n=count: read() == n, 120)  # type: ignore[misc]
            assert query.isActive and copy.count() == count
            topics.write("interval", {0: entries[count : count + 50]})
    finally:
        query.stop()


def test_records_that_are_gone_end_it_unless_that_is_allowed(
    topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    uri = topics.create("deleted", 1, **BOTH)
    topics.write("deleted", {0: log(44, 100)})
    copy = Copy(spark, uri, tmp_path)
    copy.copy_available()
    topics.write("deleted", {0: log(45, 100)})
    topics.forget("deleted", 0, 150)
    said = copy.why_it_ends()
    assert "begins at 150, but 100 was to be read next" in said, said
    assert copy.count() == 100
    Copy(spark, uri, tmp_path, fail_on_data_loss="false").copy_available()
    assert copy.count() == 150


def test_a_topic_that_was_made_anew_ends_it(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    uri = topics.create("renewed", 1)
    topics.write("renewed", {0: log(46, 60)})
    Copy(spark, uri, tmp_path).copy_available()
    topics.delete("renewed")
    topics.create("renewed", 1)
    topics.write("renewed", {0: log(47, 90)})
    assert "was re-created: begin with a new checkpoint" in Copy(spark, uri, tmp_path).why_it_ends()
