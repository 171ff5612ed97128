"""The tables of a lake by their names, in other programs: the statements that make them known there.

Gold is in the schema `group_state`, the other layers in `group_state_bronze` and `group_state_silver`. DuckDB's schemas
are `bronze`, `silver` and `gold`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import uri_of
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYERS = {"bronze": [BRONZE], "silver": list(SILVER_TABLES.values()), "gold": list(GOLD.values())}
SCHEMA = "group_state"
TABLES = {
    "duckdb": ('CREATE OR REPLACE VIEW {schema}."{table}" AS SELECT * FROM {rows}',),
    "spark": (
        "DROP TABLE IF EXISTS {schema}_source.{table}",  # a version before may have had other columns
        "CREATE TABLE {schema}_source.{table} USING group_state_lake OPTIONS ({options})",
        "CREATE OR REPLACE VIEW {schema}.{table} AS SELECT * FROM {schema}_source.{table} WITH ({options})",
    ),
    "delta": ("CREATE TABLE IF NOT EXISTS {schema}.{table} USING delta LOCATION '{place}'",),
    "trino": (
        "CALL delta.system.register_table("
        "schema_name => '{schema}', table_name => '{table}', table_location => '{place}')",
    ),
}
"""Statements of each tool that make a table known. `spark` needs no jar, and keeps the columns of a table of a Python
data source, but not its options: the view has these. `delta` is for Spark with Delta's connector, and whatever else
takes its SQL."""


def statements(lake: Lake, tool: str, layers: Collection[str] = tuple(LAYERS)) -> Iterator[str]:
    """Yields SQL without semicolons. DuckDB's names files, so it is of one moment; that of the others stays true.
    Raises AuditError if there is no lake."""
    lake.require()
    quote = "''" if tool == "trino" else "\\'"  # as the tool writes it in a text: a lake's path has no backslash
    for layer in layers:
        schema = layer if tool == "duckdb" else SCHEMA if layer == "gold" else f"{SCHEMA}_{layer}"
        yield f"CREATE SCHEMA IF NOT EXISTS {'delta.' if tool == 'trino' else ''}{schema}"
        if tool == "spark":
            yield f"CREATE SCHEMA IF NOT EXISTS {schema}_source"
        for table in LAYERS[layer]:
            base, place = (text.replace("'", quote) for text in (str(lake.base), uri_of(lake.folder(table))))
            options = f"lake = '{base}', table = '{layer}.{table.name}'"
            rows = lake.sql(table) if tool == "duckdb" else ""
            for text in TABLES[tool]:
                yield text.format(schema=schema, table=table.name, options=options, place=place, rows=rows)


def register(spark: SparkSession, lake: str, layers: Collection[str] = ("gold",)) -> None:
    """Makes `spark.table("group_state.intervals")` the lake's table, now and after each batch."""
    from sidecar.audit.ask.lake_tables import GroupStateLake
    from sidecar.audit.run.session import PUSH_DOWN

    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(GroupStateLake)
    for statement in statements(Lake.at(lake), "spark", layers):
        spark.sql(statement)
