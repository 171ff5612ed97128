"""The PySpark data source `group_state_lake`: a table of a lake, as it is when a query begins. It needs no jars.

    spark.dataSource.register(GroupStateLake)
    spark.read.format("group_state_lake").options(lake="FOLDER", table="gold.intervals").load()

Filters that compare a column with a number, a text or a flag leave out files and row groups, and Spark still applies
them. Each row passes through a Python worker: `Lake.read` has no such step, but is of one moment.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from sidecar.audit.errors import AuditError
from sidecar.audit.lake.files import dataset
from sidecar.audit.lake.lake import Lake
from sidecar.audit.source.records import SplitReader
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

TABLES = {f"{t.layer}.{t.name}": t for t in (BRONZE, *SILVER_TABLES.values(), *GOLD.values())}
TASK_BYTES = 32 << 20
"""Bytes of small files that one task reads; a larger file has a task of its own."""
COMPARED: dict[Any, Any] = {
    ds.EqualTo: operator.eq,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
}


def _rows(table: Table, folder: str, paths: Sequence[str], where: Any) -> Iterator[Any]:
    yield from dataset(table, paths, folder).to_batches(filter=where)


def _expression(f: Any) -> Any:
    """A filter as Arrow knows it; None: it leaves out nothing."""
    compare = COMPARED.get(type(f))
    if compare is None or len(f.attribute) > 1 or not isinstance(f.value, (int, str)):
        return None
    return compare(pc.field(f.attribute[0]), f.value)


class LakeReader(SplitReader, DataSourceReader):
    def __init__(self, lake: str, table: Table, schema: StructType) -> None:
        self.lake, self.table, self.schema = lake, table, schema
        self.where: Any = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        compared = [expression for f in filters if (expression := _expression(f)) is not None]
        self.where = reduce(operator.and_, compared) if compared else None
        return filters

    def partitions(self) -> list[InputPartition]:
        lake = Lake.at(self.lake)
        shares: list[list[str]] = []
        room = 0
        for file in lake.files(self.table):
            if file.size > room:
                shares.append([])
                room = TASK_BYTES
            shares[-1].append(file.path)
            room -= file.size
        folder = str(lake.folder(self.table))
        return [InputPartition(partial(_rows, self.table, folder, paths, self.where)) for paths in shares]


class GroupStateLake(DataSource):
    @classmethod
    def name(cls) -> str:
        return "group_state_lake"

    def schema(self) -> StructType | str:
        return self._table().ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(self.options["lake"], self._table(), schema)

    def _table(self) -> Table:
        missing = {"lake", "table"} - self.options.keys()
        if missing or self.options["table"] not in TABLES:
            raise AuditError("group_state_lake takes the options lake, a folder, and table, such as gold.intervals")
        return TABLES[self.options["table"]]
