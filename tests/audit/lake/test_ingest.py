"""Records of a real broker come into the lake once, from wherever they are read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import GreaterThanOrEqual
from pyspark.sql.types import StructType

from sidecar.audit.errors import AuditError
from sidecar.audit.ingest.batch import ingest
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.continuous import Metrics
from sidecar.audit.run.pipeline import audit, make_gold
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.lag import lags
from sidecar.audit.source.records import RecordsReader
from sidecar.audit.source.uri import open_source
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import Encoded
from sidecar.state.keys import decode_key
from tests.audit.lake.conftest import rows
from tests.audit.lake.making import T0, bronze, dump, log, records
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.topics import LAG_MS, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = [BRONZE, *SILVER_TABLES.values()]


def contents(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    return {t.name: rows(lake.read_arrow(t)) for t in TABLES}


def only_once(lake: Lake) -> int:
    places = [(r["state_partition"], r["offset"]) for r in rows(lake.read_arrow(BRONZE))]
    assert len(places) == len(set(places))
    silver = [(r["state_partition"], r["offset"]) for t in SILVER_TABLES.values() for r in rows(lake.read_arrow(t))]
    assert sorted(silver) == places
    return len(places)


LOGS = {0: log(11, 700), 1: played(21, 700)[1][:500], 2: log(13, 50)}


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    uri = topics.create("filled")
    topics.write("filled", LOGS)
    return uri


@pytest.fixture(scope="module")
def reference(filled: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One uninterrupted batch."""
    lake = Lake.at(tmp_path_factory.mktemp("reference") / "lake")
    done = ingest(spark, filled, lake, {"records_per_task": "300"})
    assert done.records == 1250 and done.position == {0: 700, 1: 500, 2: 50}
    make_gold(spark, lake)
    return lake


def test_bronze_is_what_was_written(reference: Lake) -> None:
    found = rows(reference.read_arrow(BRONZE))
    for p, entries in LOGS.items():
        mine = [r for r in found if r["state_partition"] == p]
        assert [(r["key"], r["value"]) for r in mine] == [(e.key, e.value) for e in entries]
        assert [[(h["name"], h["value"]) for h in r["headers"]] for r in mine] == [list(e.headers) for e in entries]
        assert [r["log_ms"] for r in mine] == [T0 + i for i in range(len(entries))]
        assert {r["log_time_type"] for r in mine} == {"create"}
    assert found[0]["log_time"] == datetime.fromtimestamp(T0 / 1000, UTC) and str(found[0]["day"]) == "2025-10-09"
    assert only_once(reference) == 1250


@pytest.mark.parametrize(
    "copy", ["file", *(pytest.param(c, marks=pytest.mark.tier("all")) for c in ("delta", "old lake", "folder"))]
)
def test_all_sources_give_the_same(copy: str, reference: Lake, spark: SparkSession, tmp_path: Path) -> None:
    if copy == "delta":
        uri = f"delta://{reference.base}"
    elif copy == "old lake":  # as versions before kept it in plain Parquet
        for n, f in enumerate(reference.files(BRONZE)):
            named = "/".join(f"{name}={value}" for name, value in f.partition)
            (to := tmp_path / f"copy/bronze/records/batch={n:08d}/{named}").mkdir(parents=True)
            shutil.copy(f.path, to)
        (tmp_path / "copy" / "lake.json").write_text('{"format": "parquet", "incarnation": 0, "version": 1}')
        with pytest.raises(AuditError, match=r"is a lake of plain Parquet files, .*anew") as refused:
            Lake.at(tmp_path / "copy")
        uri = re.findall(r"--from (\S+) --lake", str(refused.value))[0]
    elif copy == "folder":  # what any tool may have written
        uri = f"parquet://{tmp_path}/copy"
        reference.read(spark, BRONZE).repartition(2).write.parquet(f"{tmp_path}/copy")
    else:
        uri = f"file://{tmp_path}/copy.jsonl.gz"
        found = open_source(f"delta://{reference.base}")
        dump((b for s in found.splits(found.bounds()) for b in s()), tmp_path / "copy.jsonl.gz")
    lake = Lake.at(tmp_path / "lake")
    assert ingest(spark, uri, lake).records == 1250
    assert contents(lake) == contents(reference)
    make_gold(spark, lake)
    told = gold_of(lake)
    assert told == gold_of(reference) and told["intervals"] and told["rebalances"]
    by_spark = [r.asDict(recursive=True) for r in records(spark, uri).orderBy("state_partition", "offset").collect()]
    assert [(r["offset"], r["key"], r["headers"]) for r in by_spark] == [
        (r["offset"], r["key"], r["headers"]) for r in contents(reference)["records"]
    ]


@pytest.mark.tier("all")
def test_batch_by_batch_is_the_same_as_at_once_and_a_second_run_changes_nothing(
    filled: str, reference: Lake, spark: SparkSession, lake_folder: Path
) -> None:
    lake = Lake.at(lake_folder)
    numbers = []
    while (done := ingest(spark, filled, lake, {"max_records": "500"})).new:
        numbers.append(done.records)
    assert len(numbers) == 3 and sum(numbers) == 1250
    assert contents(lake) == contents(reference)
    before = sorted(p for p in lake_folder.rglob("*") if p.is_file())
    assert not ingest(spark, filled, lake).new
    assert sorted(p for p in lake_folder.rglob("*") if p.is_file()) == before
    counts = {n: lake.read(spark, t).count() for n, t in SILVER_TABLES.items()}
    assert counts == {n: len(contents(reference)[n]) for n in SILVER_TABLES}


@pytest.mark.tier("all")
def test_duckdb_reads_every_table(reference: Lake) -> None:
    import duckdb

    for table in TABLES:
        found = duckdb.execute(f"SELECT count(*) FROM {reference.sql(table)}").fetchall()
        assert found == [(len(contents(reference)[table.name]),)], table.name
    sql = f"SELECT DISTINCT state_partition FROM {reference.sql(BRONZE)} WHERE day = DATE '2025-10-09' ORDER BY 1"
    assert duckdb.execute(sql).fetchall() == [(0,), (1,), (2,)]


@pytest.mark.tier("all")
def test_filters_leave_out_what_cannot_match(topics: Topics, spark: SparkSession) -> None:
    uri = topics.create("filters", 7)
    p = partition_for("g", 7)
    topics.write("filters", {p: log(3, 400), (p + 1) % 7: log(4, 200)})
    theirs = sum(decode_key(e.key)[1] == "g" for e in log(3, 400))
    found = records(spark, uri, {"records_per_task": "100"})
    assert found.count() == 600
    assert found.rdd.getNumPartitions() == 6
    for condition, count, tasks in (
        ("group_id = 'g'", theirs, 4),
        (f"state_partition = {p} AND offset >= 250 AND offset < 260", 10, 1),
        (f"state_partition IN ({p}) AND offset > 250 AND offset <= 260", 10, 1),
        (f"state_partition = {p} AND log_ms >= {T0 + 300}", 100, 2),
        (f"state_partition = {p} AND log_time >= timestamp_millis({T0 + 300})", 100, 2),
        ("state_partition = 99", 0, 0),
    ):
        some = found.filter(condition)
        assert some.count() == count, condition
        assert some.rdd.getNumPartitions() == max(tasks, 1), condition


@pytest.mark.tier("all")
def test_what_is_in_a_transaction_counts_when_it_is_committed(
    topics: Topics, spark: SparkSession, lake_folder: Path
) -> None:
    """A sidecar writes what is too large for one batch in a transaction. One that is open holds back what is behind."""
    uri = topics.create("transactions", 1)
    entries = log(31, 100)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(30)

    def write(part: Sequence[Encoded]) -> None:
        producer.begin_transaction()
        for e in part:
            producer.produce("transactions", e.value, e.key, 0, headers=list(e.headers))
        producer.flush(30)

    write(entries[:30])
    producer.abort_transaction(30)
    write(entries[30:50])
    producer.commit_transaction(30)
    write(entries[50:90])
    topics.write("transactions", {0: entries[90:]})
    lake = Lake.at(lake_folder)
    assert ingest(spark, uri, lake).records == 20
    ingest(spark, uri, lake)
    assert only_once(lake) == 20, "nothing more as long as it is open"
    producer.commit_transaction(30)
    assert ingest(spark, uri, lake).records == 50 and only_once(lake) == 70
    found = sorted(rows(lake.read_arrow(BRONZE)), key=lambda r: int(r["offset"]))
    assert [r["value"] for r in found] == [e.value for e in entries[30:]]


@pytest.mark.tier("all")
def test_a_late_start_in_the_middle(
    topics: Topics, reference: Lake, filled: str, spark: SparkSession, lake_folder: Path
) -> None:
    lake = Lake.at(lake_folder)
    ingest(spark, filled, lake, {"starting_offsets": '{"0": 400, "1": 500}'})
    mine, whole = contents(lake), contents(reference)
    assert not mine["corrupt"], "the schemas that this version knows need not be in the part that is read"
    wanted = [
        r for r in whole["current"] if r["state_partition"] == 2 or (r["state_partition"], r["offset"]) >= (0, 400)
    ]
    wanted = [r for r in wanted if r["state_partition"] != 1]
    assert [r["offset"] for r in mine["current"]] == [r["offset"] for r in wanted]


@pytest.mark.tier("all")
def test_a_topic_that_was_re_created(topics: Topics, spark: SparkSession, lake_folder: Path) -> None:
    uri = topics.create("again", 1)
    topics.write("again", {0: log(5, 60)})
    lake = Lake.at(lake_folder)
    ingest(spark, uri, lake)
    before = contents(lake)
    topics.delete("again")
    topics.create("again", 1)
    topics.write("again", {0: log(6, 80)})
    with pytest.raises(AuditError, match=r"re-created.*new_incarnation"):
        ingest(spark, uri, lake)
    done = ingest(spark, uri, lake, {"new_incarnation": "true"})
    assert (done.records, done.incarnation) == (80, 1)
    assert not ingest(spark, uri, Lake.at(lake_folder), {"new_incarnation": "true"}).new, "it is the same one now"
    assert only_once(Lake.at(lake_folder)) == 80
    assert contents(Lake.at(lake_folder, incarnation=0)) == before


@pytest.mark.tier("all")
def test_history_that_is_about_to_be_lost(topics: Topics) -> None:
    uri = topics.create("lag", 2)
    topics.write("lag", {0: log(8, 50)})
    source = open_source(uri)
    assert isinstance(source, KafkaSource)
    early = lags(source, {}, now_ms=T0 + 1000)
    assert [(lag.behind, lag.lost, lag.age_ms, lag.allowed_ms) for lag in early] == [
        (50, 0, 1000, LAG_MS),
        (0, 0, None, LAG_MS),
    ]
    assert not any(lag.lost_soon for lag in early)
    late = [lag for lag in lags(source, {0: 10}, now_ms=T0 + LAG_MS) if lag.lost_soon]
    assert [(lag.partition, lag.behind) for lag in late] == [(0, 40)]
    assert not any(lag.lost_soon for lag in lags(source, {0: 50}, now_ms=T0 + LAG_MS))
    metrics = Metrics()
    for lag in late:
        metrics.set_lag(lag)
    assert metrics.registry.get_sample_value("group_state_audit_lag_records", {"partition": "0"}) == 40
    assert (
        metrics.registry.get_sample_value("group_state_audit_compaction_lag_seconds", {"partition": "0"})
        == LAG_MS / 1e3
    )


def test_a_bad_record_among_good_ones_ends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    good = log(9, 100)
    entries = [*good[:50], (b"\xff", b"x"), *[(e.key, (e.value or b"")[:-1]) for e in good[50:60]], *good[60:]]
    dump([bronze(entries)], tmp_path / "dump.jsonl")
    lake = Lake.at(tmp_path / "lake")
    done = ingest(spark, f"file://{tmp_path}/dump.jsonl", lake)
    assert done.records == 101 and done.counts["corrupt"] >= 2
    assert only_once(lake) == 101


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("ftp://x", "is no source"),
        ("kafka://", "no broker"),
        ("delta:///no/such", "does not exist"),
        ("x", "is no source"),
    ],
)
def test_a_wrong_source_says_what_to_write(uri: str, what: str) -> None:
    with pytest.raises(AuditError, match=what):
        open_source(uri)


def test_client_settings_that_are_passed_on() -> None:
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u", "kafka.sasl.password": "p"}
    options = {"kafka.security.protocol": "SASL_SSL", "topic": "t", **login}
    source = open_source("kafka://h:1,h:2", options)
    assert isinstance(source, KafkaSource)
    config = source.config()
    assert config["security.protocol"] == "SASL_SSL" and config["bootstrap.servers"] == "h:1,h:2"
    assert (config["sasl.username"], config["sasl.password"]) == ("u", "p")
    assert "u" not in source.shown and source.shown.endswith("/t")
    with pytest.raises(AuditError, match=r"kafka\.isolation\.level"):
        open_source("kafka://h:1", {"kafka.isolation.level": "x"})


def test_client_settings_with_javas_names() -> None:
    said = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.client.id": "me"}
    login = {"kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="p";'}
    source = open_source("kafka://h:1", said | login)
    assert isinstance(source, KafkaSource)
    config = source.config()
    assert (config["sasl.username"], config["sasl.password"], config["client.id"]) == ("u", "p", "me")
    assert "sasl.jaas.config" not in config
    with pytest.raises(AuditError, match="needs a username and a password"):
        open_source("kafka://h:1", said | {"kafka.sasl.jaas.config": "PlainLoginModule required;"})


@pytest.mark.tier("all")
def test_a_day_and_a_group_of_a_lake_are_read_without_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    day = 86_400_000
    first, second = log(3, 100, groups=("one",)), log(4, 60, groups=("two",))
    dump([bronze(first[:50], 0), bronze(first[50:], 0, first=50, ms=T0 + day), bronze(second, 1)], tmp_path / "a.jsonl")
    lake = Lake.at(tmp_path / "lake")
    audit(spark, f"file://{tmp_path}/a.jsonl", lake)
    files = {(dict(f.partition)["day"], dict(f.partition)["state_partition"]): f.path for f in lake.files(BRONZE)}
    days = sorted({str(d) for d, _ in files})
    assert set(files) == {(days[0], "0"), (days[1], "0"), (days[0], "1")}

    uri = f"delta://{lake.base}"
    for condition, wanted in (
        (f"log_ms >= {T0 + day}", {(days[1], "0")}),
        (f"log_ms < {T0 + day // 2}", {(days[0], "0"), (days[0], "1")}),
        (f"day = date'{days[1]}'", {(days[1], "0")}),
        (f"log_time <= timestamp_millis({T0 + 1000}) AND group_id = 'two'", {(days[0], "1")}),
        ("group_id = 'one'", {(days[0], "0"), (days[1], "0")}),
    ):
        some = records(spark, uri).filter(condition)
        assert some.rdd.getNumPartitions() == len(wanted), condition
        assert some.count() == lake.read(spark, BRONZE).filter(condition).count() > 0, condition
    reader = RecordsReader({"uri": uri}, StructType())
    reader.pushFilters([GreaterThanOrEqual(("log_time",), datetime.fromtimestamp((T0 + day) / 1000, UTC))])
    (one,) = reader.partitions()
    assert one.value.args[0].path == files[days[1], "0"]
