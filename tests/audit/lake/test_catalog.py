"""The tables of a lake by their names in other programs, on SQL that `sidecar audit views` prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from sidecar.audit.ask.catalog import LAYERS, register
from sidecar.audit.ask.lake_tables import COMPARED, GroupStateLake
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE
from sidecar.cli.main import app
from tests.audit.lake.test_pipeline import dump, played
from tests.audit.lake.without_spark import SPARK, run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.tier("all")
ENTRIES = played(3, 80)[1]


def filled(lake: Lake, count: int) -> None:
    """With the first records of the topic, in a batch."""
    source = Path(lake.base).parent / "dump.jsonl"
    dump(source, ENTRIES[:count])
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        audit(SPARK, f"file://{source}", lake)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """In a folder whose name has what SQL must have escaped. Open rows of the first batch have been replaced."""
    made = Lake.at(tmp_path / "the audit's lake")
    for count in (len(ENTRIES) // 2, len(ENTRIES)):
        filled(made, count)
    return made


def printed(lake: Lake, tool: str) -> list[str]:
    done = CliRunner().invoke(app, ["audit", "views", "--for", tool, "--lake", str(lake.base)])
    assert done.exit_code == 0, done.output
    return [line.removesuffix(";") for line in done.stdout.splitlines()]


def same_rows(found: Any, wanted: Any) -> bool:
    return sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def name_of(layer: str, table: str) -> str:
    return f"group_state.{table}" if layer == "gold" else f"group_state_{layer}.{table}"


@pytest.fixture
def catalog(spark: SparkSession) -> Any:
    spark.dataSource.register(GroupStateLake)
    yield spark
    for schema in ("group_state", "group_state_bronze", "group_state_silver"):
        for name in (schema, f"{schema}_source"):
            spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_spark_has_the_tables_by_their_names(lake: Lake, catalog: SparkSession) -> None:
    for statement in printed(lake, "spark"):
        catalog.sql(statement)
    for layer, tables in LAYERS.items():
        for table in tables if layer == "gold" else tables[:1]:
            found = catalog.table(name_of(layer, table.name))
            assert found.columns == list(table.names)
            assert same_rows(found.toArrow(), lake.read_arrow(table)), table.name
    assert catalog.table("group_state.intervals").where("open").count() > 0


def test_a_table_of_the_catalog_is_that_of_the_last_batch(tmp_path: Path, catalog: SparkSession) -> None:
    lake = Lake.at(tmp_path / "lake")
    filled(lake, len(ENTRIES) // 2)
    for _ in range(2):  # so again where the catalog outlives the session
        register(catalog, str(lake.base))
    before = catalog.table("group_state.intervals").toArrow()
    assert same_rows(before, lake.read_arrow(GOLD["intervals"]))
    filled(lake, len(ENTRIES))
    after = catalog.table("group_state.intervals").toArrow()
    assert same_rows(after, lake.read_arrow(GOLD["intervals"])) and not same_rows(after, before)


def test_filters_leave_out_what_cannot_match(lake: Lake, catalog: SparkSession) -> None:
    rows = catalog.read.format("group_state_lake").options(lake=str(lake.base), table="bronze.records").load()
    conditions = [f"offset {sign} 20" for sign in ("=", "<", "<=", ">", ">=")] + ["log_time > '2020-01-01'"]
    assert len(conditions) > len(COMPARED), "each is tried"
    for condition in [*conditions, "offset > 5 and log_time_type = 'create' and not (offset = 7)", "offset in (3, 5)"]:
        wanted = lake.read(catalog, BRONZE).where(condition)
        assert same_rows(rows.where(condition).toArrow(), wanted.toArrow()), condition
    (split,) = reading(lake, [next(iter(COMPARED))(("offset",), 20)])
    assert [len(batch) for batch in split() if len(batch)] == [1], "Spark is given one row"


def reading(lake: Lake, filters: list[Any]) -> list[Any]:
    reader: Any = GroupStateLake({"lake": str(lake.base), "table": "bronze.records"}).reader(None)  # type: ignore[arg-type]
    assert reader.pushFilters(filters) == filters, "Spark still applies them"
    return [p.value for p in reader.partitions()]


def test_an_option_that_is_missing_or_wrong_is_named() -> None:
    for options in ({}, {"lake": "x"}, {"lake": "x", "table": "intervals"}):
        with pytest.raises(AuditError, match=r"options lake, a folder, and table, such as gold\.intervals"):
            GroupStateLake(options).schema()


@pytest.mark.parametrize("tool", ["delta", "trino"])
def test_other_engines_are_told_where_each_delta_table_is(lake: Lake, tool: str) -> None:
    """Neither tool is here: this shows only that the place is right, and that each table is named once."""
    told = printed(lake, tool)
    for layer, tables in LAYERS.items():
        schema, _, _ = name_of(layer, "").partition(".")
        assert f"CREATE SCHEMA IF NOT EXISTS {'delta.' if tool == 'trino' else ''}{schema}" in told
        for table in tables:
            name = {"delta": f" {schema}.{table.name} ", "trino": f"'{schema}', table_name => '{table.name}',"}[tool]
            (statement,) = [line for line in told if name in line]
            quoted = re.findall(r"'(file://.*)'", statement)[0]
            place = quoted.replace("\\'", "'").replace("''", "'")
            assert len(DeltaTable(place).to_pyarrow_table()) == len(lake.read_arrow(table)), statement
