"""One broker and one Spark session for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.drill.local import LocalKafka
from tests.audit.lake.topics import Topics
from tests.audit.lake.without_spark import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from sidecar.audit.run.session import session

    made = session({"spark.master": "local[2,4]", "spark.driver.memory": "512m", "spark.log.level": "OFF", **QUICK})
    yield made
    made.stop()


QUICK = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is done in this process."""
    run_here(monkeypatch)


@pytest.fixture(scope="session")
def topics(kafka: LocalKafka) -> Topics:
    return Topics(kafka.internal)


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def rows(table: Any) -> list[dict[str, Any]]:
    """In the order of the log."""
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda r: (r["state_partition"], r["offset"]))
