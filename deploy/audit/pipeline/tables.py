"""The tables: a view for each of gold and silver, as `intervals` and `silver_members`."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from sidecar.audit.dataframes import SILVER, gold, silver, table
from sidecar.audit.source.uri import open_source
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE

spark = SparkSession.active()
source = open_source(spark.conf.get("spark.group_state.uri"))
splits = source.splits(source.bounds())


def read(numbers):
    """For `group_state_records`: with a Python data source, `spark-pipelines` of 4.2 and 4.3 ends with an error."""
    for batch in numbers:
        for n in batch.column(0).to_pylist():
            yield from splits[n]()


# A function of a pipeline may ask Spark nothing, also not for the columns of what it maps.
records = spark.range(0, len(splits), 1, len(splits)).mapInArrow(read, BRONZE.ddl)
decoded = silver(records)
folded = gold(decoded)


dp.materialized_view(lambda: decoded, name="silver_rows")
dp.materialized_view(lambda: folded, name="gold_rows")
for name in GOLD:
    dp.materialized_view(lambda name=name: table(spark.table("gold_rows"), name), name=name)
for name in SILVER:
    dp.materialized_view(lambda name=name: table(spark.table("silver_rows"), name), name=f"silver_{name}")
