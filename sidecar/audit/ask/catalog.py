"""The tables of a lake by their names, in other programs: the statements that make them known there.

Gold is in the schema `group_state`, the other layers in `group_state_bronze` and `group_state_silver`. DuckDB's schemas
are `bronze`, `silver` and `gold`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import uri_of
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYERS = {"bronze": [BRONZE], "silver": list(SILVER_TABLES.values()), "gold": list(GOLD.values())}
SCHEMA = "group_state"


def statements(lake: Lake, tool: str, layers: Collection[str] = tuple(LAYERS)) -> Iterator[str]:
    """Yields SQL without semicolons. DuckDB's names files, so it is of one moment; that of the others stays true.
    Raises AuditError if there is no lake."""
    lake.require()
    for layer in layers:
        schema = layer if tool == "duckdb" else SCHEMA if layer == "gold" else f"{SCHEMA}_{layer}"
        yield f"CREATE SCHEMA IF NOT EXISTS {'delta.' if tool == 'trino' else ''}{schema}"
        if tool == "spark":
            yield f"CREATE SCHEMA IF NOT EXISTS {schema}_source"
        for table in LAYERS[layer]:
            yield from MADE[tool](lake, schema, table)


def _duckdb(lake: Lake, schema: str, table: Table) -> Iterator[str]:
    yield f'CREATE OR REPLACE VIEW {schema}."{table.name}" AS SELECT * FROM {lake.sql(table)}'


def _spark(lake: Lake, schema: str, table: Table) -> Iterator[str]:
    """Spark keeps the columns of a table of a Python data source, but not its options: the view has these."""
    source = f"{schema}_source.{table.name}"
    options = f"lake = {_text(str(lake.base))}, table = '{table.layer}.{table.name}'"
    yield f"DROP TABLE IF EXISTS {source}"  # a version before may have had other columns
    yield f"CREATE TABLE {source} USING group_state_lake OPTIONS ({options})"
    yield f"CREATE OR REPLACE VIEW {schema}.{table.name} AS SELECT * FROM {source} WITH ({options})"


def _delta(lake: Lake, schema: str, table: Table) -> Iterator[str]:
    place = _text(uri_of(lake.folder(table)))
    yield f"CREATE TABLE IF NOT EXISTS {schema}.{table.name} USING delta LOCATION {place}"


def _trino(lake: Lake, schema: str, table: Table) -> Iterator[str]:
    place = uri_of(lake.folder(table)).replace("'", "''")
    names = f"schema_name => '{schema}', table_name => '{table.name}', table_location => '{place}'"
    yield f"CALL delta.system.register_table({names})"


MADE: dict[str, Callable[[Lake, str, Table], Iterator[str]]] = {
    "duckdb": _duckdb,
    "spark": _spark,
    "delta": _delta,
    "trino": _trino,
}
"""`spark` needs no jar; `delta` is for Spark with Delta's connector, and whatever else takes its SQL."""


def _text(value: str) -> str:
    """Returns the value as a literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def register(spark: SparkSession, lake: str, layers: Collection[str] = ("gold",)) -> None:
    """Makes `spark.table("group_state.intervals")` the lake's table, now and after each batch."""
    from sidecar.audit.ask.lake_tables import GroupStateLake
    from sidecar.audit.run.session import PUSH_DOWN

    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(GroupStateLake)
    for statement in statements(Lake.at(lake), "spark", layers):
        spark.sql(statement)
