"""Silver and gold of a DataFrame are the lake's, in every column: on classic Spark and on Spark Connect."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from sidecar.audit.dataframes import CLAIMED, SILVER, gold, silver, table
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.keys import encode_key
from tests.audit.lake.making import bronze, dump, log, records
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.test_versions import in_turns
from tests.audit.lake.without_spark import SPARK, run_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = dict[str, list[dict[str, Any]]]


def ordered(rows: DataFrame, tables: Any) -> Rows:
    def order(row: dict[str, Any]) -> str:
        return json.dumps(row, default=str, sort_keys=True)

    kept = rows.toArrow()
    found = {name: [r[name] for r in kept.filter(ds.field("table") == name).to_pylist()] for name in tables}
    return {name: sorted(many, key=order) for name, many in found.items()}


def gold_frames(rows: DataFrame) -> Rows:
    return ordered(gold(silver(rows)), GOLD)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A group of either kind, one that is not there from the begin, anything at all, and two versions in turns with
    what nobody can read: a claim among that, for its key is a claim all the same."""
    folder = tmp_path_factory.mktemp("dumps")
    kept = in_turns()
    bad = [(encode_key(OWNER_CLAIM, "", str(1 << 40)), b"no claim"), (b"\1\2", b"no key")]
    entries: list[Any] = [*kept[:-20], *bad, *kept[-20:]]
    parts: list[tuple[list[Any], int]] = [
        (played(3, 80)[1], 0),
        (played(6, 60)[1][60:], 60),
        (log(11, 300), 0),
        (entries, 0),
    ]
    dump([bronze(e, p, first) for p, (e, first) in enumerate(parts)], folder / "all.jsonl")
    return f"file://{folder}"


@pytest.fixture(scope="module")
def lake(source: str, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.at(tmp_path_factory.mktemp("lake") / "lake")
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        audit(SPARK, source, made)
    told = gold_of(made)
    assert told["intervals"] and told["rebalances"] and told["stale_writes"] and told["unreadable"]
    return made


def test_silver_is_the_lakes(source: str, lake: Lake, spark: SparkSession) -> None:
    found = ordered(silver(records(spark, source)), SILVER)
    for name, t in SILVER_TABLES.items():
        wanted = lake.read_arrow(t, [c for c in t.names if c != CLAIMED]).to_pylist()
        assert sorted(found[name], key=str) == sorted(wanted, key=str), name


def test_gold_is_the_lakes(source: str, lake: Lake, spark: SparkSession) -> None:
    assert gold_frames(records(spark, source)) == gold_of(lake)


def test_it_does_not_matter_how_the_records_are_spread(source: str, lake: Lake, spark: SparkSession) -> None:
    """A task may not see the schemas of the records that it decodes, nor the claims before them."""
    decoded = silver(records(spark, source).repartition(3, "offset"))
    assert table(decoded, "corrupt").where("reason like 'unknown schema%'").count() > 0, "it had them all the same"
    assert ordered(gold(decoded), GOLD) == gold_of(lake)


def test_no_records_give_no_rows(source: str, spark: SparkSession) -> None:
    none = gold(silver(records(spark, source).where("offset < 0")))
    assert table(none, "intervals").columns == list(GOLD["intervals"].names)
    assert none.count() == 0


@pytest.mark.tier("all")  # a server and a process of its own
def test_on_spark_connect(source: str, lake: Lake, tmp_path: Path) -> None:
    # SPARK_TESTING: the server takes a free port, and not 15002, which another test's broker may have.
    env = {**os.environ, "SPARK_REMOTE": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}
    command = [sys.executable, "-m", "tests.audit.lake.connected", source, str(tmp_path)]
    subprocess.run(command, env=env, timeout=600, check=True, stdout=subprocess.DEVNULL)
    assert gold_of(Lake.at(tmp_path / "lake")) == gold_of(lake)
    by_name = pickle.loads((tmp_path / "intervals.pickle").read_bytes())
    assert sorted(by_name, key=str) == sorted(lake.read_arrow(GOLD["intervals"]).to_pylist(), key=str)
    assert pickle.loads((tmp_path / "gold.pickle").read_bytes()) == gold_of(lake)
    streamed = ds.dataset(tmp_path / "rows", format="parquet", exclude_invalid_files=True).count_rows()
    assert streamed == sum(len(lake.read_arrow(t)) for t in SILVER_TABLES.values())
