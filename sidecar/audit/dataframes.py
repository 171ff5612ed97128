"""Silver and gold of records in a DataFrame, in any Spark session and without a lake.

    records = spark.read.format("group_state_records").option("uri", "kafka://HOST:PORT").load()
    tables = gold(silver(records)).cache()
    table(tables, "intervals").show()

Either gives all its tables as one DataFrame: each row has a value in the column of its own table, which `table` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.decode.decoder import LONG_MAX, UNKNOWN_SCHEMA, Decoder, in_sizes, schemas_in
from sidecar.audit.errors import Misused
from sidecar.audit.gold.fold import fold
from sidecar.audit.gold.frames import Database, Frame, database
from sidecar.audit.lake.files import no_rows, typed
from sidecar.audit.source.bronze import HEADERS, fingerprints_of
from sidecar.audit.tables.columns import TEXT, Table, ddl
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.fold import EPOCH_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLAIMED = "claimed_epoch"
Tables = Mapping[str, Table]
SILVER: Tables = {
    name: replace(t, columns=tuple(c for c in t.columns if c.name != CLAIMED)) for name, t in SILVER_TABLES.items()
}
"""The tables of silver without the epoch of the last claim, which is in another record: `gold` looks for it."""


def silver(records: DataFrame) -> DataFrame:
    """Decodes rows of bronze, as the data source gives them: also those of a stream."""
    return records.select(*BRONZE.names).mapInArrow(_decoded, _ddl(SILVER))


def gold(silver: DataFrame) -> DataFrame:
    """Folds silver, which has all records of its state partitions from their first one on. All of a state partition
    goes through one task, and what does not fit into its memory through the executor's disk. Raises Misused for a
    stream, each of whose batches would be folded as if there was no record before it."""
    if silver.isStreaming:
        raise Misused(
            "gold needs all records of a state partition, and a stream gives each batch alone: write silver of the"
            " stream to a table and read that, or run `sidecar audit stream`"
        )
    return silver.repartition("state_partition").mapInArrow(_folded, _ddl(GOLD))


def table(rows: DataFrame, name: str) -> DataFrame:
    """One table of what `silver` or `gold` gave."""
    return rows.where(f"`table` = '{name}'").select(f"`{name}`.*")


# ---- all tables in one ----------------------------------------------------------------------------------------------
def _ddl(tables: Tables) -> str:
    structs = (f"`{n}` struct<{', '.join(f'`{c.name}`: {ddl(c.type)}' for c in t.columns)}>" for n, t in tables.items())
    return ", ".join(("`table` string", "state_partition int", *structs))


def _together(tables: Tables, name: str, rows: Any) -> Any:
    """Rows of one table, as rows of all."""
    columns = {"table": pa.repeat(pa.scalar(name, TEXT), len(rows)), "state_partition": rows["state_partition"]}
    for other, t in tables.items():
        struct = pa.struct([(c.name, c.type) for c in t.columns])
        mine = [rows[c.name] for c in t.columns] if other == name else []
        columns[other] = pa.StructArray.from_arrays(mine, fields=list(struct)) if mine else pa.nulls(len(rows), struct)
    return pa.RecordBatch.from_pydict(columns)


def _apart(tables: Tables, batch: Any) -> Iterator[tuple[str, Any]]:
    for name in batch["table"].unique().to_pylist():
        struct = batch[name].filter(pc.equal(batch["table"], name))
        rows = pa.RecordBatch.from_arrays(struct.flatten(), names=[f.name for f in struct.type])
        yield name, typed(rows, tables[name])


# ---- what tasks do --------------------------------------------------------------------------------------------------
def _decoded(batches: Iterable[Any]) -> Iterator[Any]:
    decoder = Decoder({}, {})
    for batch in in_sizes(typed(b, BRONZE) for b in batches):
        for text in schemas_in(batch).values():
            decoder.schemas.learn(text)
        for name, rows in decoder.decode(batch).items():
            yield _together(SILVER, name, rows)


def _folded(batches: Iterable[Any]) -> Iterator[Any]:
    with database() as db:
        tables = _Read(db)
        for batch in batches:
            for name, rows in _apart(SILVER, batch):
                tables.add(name, rows)
        if tables.names:
            tables.read_again()
            for name, frame in fold(db, tables.claimed(), {}, tables.begins()).gold.items():
                for rows in frame.batches():
                    yield _together(GOLD, name, typed(rows, GOLD[name]))


class _Read:
    """Silver of some state partitions, in tables of DuckDB."""

    def __init__(self, db: Database) -> None:
        self.db, self.names = db, set[str]()
        self.tables = {name: Frame(db, f"silver_{name}") for name in SILVER}
        for name, table in SILVER.items():
            db.connection.execute(f"create table silver_{name} as from {no_rows(table)}")

    def add(self, name: str, rows: Any) -> None:
        self.db.connection.register("added", pa.Table.from_batches([rows]))
        self.db.connection.execute(f"insert into silver_{name} from added")
        self.names.add(name)

    def read_again(self) -> None:
        """Values whose schema has been read elsewhere: a newer version has written both."""
        where = f"starts_with(reason, '{UNKNOWN_SCHEMA}')"
        unread = list(self.tables["corrupt"].where(where).batches())
        texts = [text for batch in self.tables["schemas"].batches() for text in batch["text"].to_pylist() if text]
        if not unread or not texts:
            return
        self.db.connection.execute(f"delete from silver_corrupt where {where}")
        decoder = Decoder({text: text for text in texts}, {})
        for batch in unread:
            more = {"headers": pa.nulls(len(batch), HEADERS), "fingerprint": fingerprints_of(batch["value"])}
            columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | more
            for name, rows in decoder.decode(pa.RecordBatch.from_pydict(columns)).items():
                self.add(name, typed(rows, SILVER[name]))

    def claimed(self) -> dict[str, Frame]:
        """With the owner epoch of the last claim before each record. What counts as a claim: `decode.claims_in`."""
        claims = self.db.query(f"""
            select state_partition, offset, least(claim::hugeint, {LONG_MAX})::bigint as epoch from (
                    select state_partition, offset, claim from {self.tables["claims"]} where not deleted
                    union all select state_partition, offset, sub_id from {self.tables["corrupt"]}
                        where kind = '{OWNER_CLAIM}' and value is not null)
                where regexp_full_match(claim, '[0-9]{{1,{EPOCH_DIGITS}}}')""").computed()
        return {
            name: claims.query(f"""select r.*, c.epoch as {CLAIMED} from {self.tables[name]} r asof left join {claims} c
                on r.state_partition = c.state_partition and r.offset > c.offset""").computed()
            for name in sorted(self.names)
        }

    def begins(self) -> dict[int, tuple[int, int]]:
        """The offsets before the first record of each state partition: nobody knows what was there."""
        parts = " union all ".join(f'select state_partition, "offset" from silver_{name}' for name in self.names)
        query = f'select state_partition, min("offset") from ({parts}) group by 1'
        return {p: (0, first) for p, first in self.db.connection.execute(query).fetchall() if first}
