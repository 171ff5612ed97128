"""The PySpark data source `group_state_records`: the state topic, or a copy of it, as rows of bronze. It needs no jars.

    spark.dataSource.register(GroupStateRecords)
    spark.read.format("group_state_records").option("uri", "kafka://host:9092").load()

Options: `uri`; `topic`; `kafka.*`, passed through to the client; `records_per_task`. Of a stream also
`starting_offsets` (earliest, or {"partition": offset}), `max_records` (of one batch), and `fail_on_data_loss` (true).
Filters leave out what cannot match, and Spark still applies them: state_partition and offset from all sources; of the
topic also group_id (its one state partition), and a lower bound of log_ms and log_time; of a copy in folders by day and
state partition also group_id (of a lake: its `coverage` knows the partition), day, and both bounds of log_ms and
log_time. A dump is always read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sidecar.audit.decode.decoder import times
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.batch import Ranges
from sidecar.audit.source.bronze import DAY_MS
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.options import READ, STREAM, limited, starting_offsets
from sidecar.audit.source.uri import CopySource, Source, open_source
from sidecar.audit.tables.columns import DATE, LONG
from sidecar.audit.tables.layers import BRONZE
from sidecar.core.vocabulary.placement import partition_for

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACTLY = (ds.EqualTo, ds.EqualNullSafe)
FROM = (ds.GreaterThan, ds.GreaterThanOrEqual, *EXACTLY)
UPTO = (ds.LessThan, ds.LessThanOrEqual, *EXACTLY)
EVERY = (-(1 << 63), (1 << 63) - 1)


class SplitReader:
    """The part of a reader of Spark that reads partitions. The value of each is a split."""

    schema: StructType

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields Arrow batches as Spark wants them: it names the parts of lists differently."""
        if partition.value is None:
            return  # Spark's way to say that there is no partition
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        for batch in partition.value():
            yield pa.RecordBatch.from_arrays([batch[f.name].cast(f.type) for f in wanted], schema=wanted)


class Wanted:
    """The records that filters ask for, as far as that helps to read less. Nothing that could match is left out.
    `offsets`, `ms`: the first and the last offset, and log time."""

    def __init__(self) -> None:
        self.partitions: set[int] | None = None
        self.groups: set[str] | None = None
        self.offsets = self.ms = EVERY

    def add(self, f: Filter) -> None:
        name = getattr(f, "attribute", ("",))[0]
        value: Any = getattr(f, "value", None)
        if name in ("state_partition", "group_id") and isinstance(f, (*EXACTLY, ds.In)):
            values: set[Any] = set(value) if isinstance(f, ds.In) else {value}
            if name == "state_partition":
                self.partitions = values if self.partitions is None else self.partitions & values
            elif "" not in values and None not in values:  # what is no group's is in any partition
                self.groups = values if self.groups is None else self.groups & values
        elif name == "offset" and isinstance(value, int):
            self.offsets = _narrowed(self.offsets, f, value, value)
        elif name in ("log_ms", "log_time", "day") and value is not None and not isinstance(f, ds.In):
            self.ms = _narrowed(self.ms, f, *_ms(value))

    def days(self) -> tuple[date, date]:
        """The first and the last day that are wanted, clipped as bronze's days are."""
        first, last = times(pa.array(self.ms, LONG)).cast(DATE).to_pylist()
        return first, last

    def of(self, source: Source, bounds: Mapping[int, tuple[int, int]]) -> Ranges:
        """The ranges that are left. A group's place and the order of times are only known of the topic itself. Only of
        a lower bound of time: records need not be in the order of their times, and the broker answers the first one
        that is as late, but not the last one that is as early."""
        kept = dict(bounds)
        if self.partitions is not None:
            kept = {p: r for p, r in kept.items() if p in self.partitions}
        if isinstance(source, KafkaSource):
            if self.groups is not None:
                theirs = {partition_for(g, len(bounds)) for g in self.groups}
                kept = {p: r for p, r in kept.items() if p in theirs}
            if self.ms[0] != EVERY[0] and kept:
                starts = source.from_time(list(kept), self.ms[0])
                kept = {p: (max(a, starts.get(p, a)), b) for p, (a, b) in kept.items()}
        first, last = self.offsets
        kept = {p: (max(a, first), min(b, last + 1)) for p, (a, b) in kept.items()}
        return {p: (a, b) for p, (a, b) in kept.items() if a < b}


def _narrowed(span: tuple[int, int], f: Filter, first: int, last: int) -> tuple[int, int]:
    """Returns the part of a span that a filter asks for, or one more at either end. `first`, `last`: the numbers that
    the filter's value stands for, more than one for a day."""
    low, high = span
    return (max(low, first) if isinstance(f, FROM) else low), (min(high, last) if isinstance(f, UPTO) else high)


def _ms(value: Any) -> tuple[int, int]:
    """The first and the last millisecond of what the value of a filter stands for."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        ms = (aware - EPOCH) // timedelta(milliseconds=1)
        return ms, ms
    first = (value - EPOCH.date()).days * DAY_MS
    return first, first + DAY_MS - 1


class RecordsReader(SplitReader, DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options, self.schema = dict(options), schema
        self.wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        for f in filters:
            self.wanted.add(f)
        return filters

    def partitions(self) -> list[InputPartition]:
        source = _source(self.options, READ)
        if isinstance(source, CopySource):
            source = replace(source, days=self.wanted.days(), groups=frozenset(self.wanted.groups or ()))
        return [InputPartition(s) for s in source.splits(self.wanted.of(source, source.bounds()))]


def _source(options: Mapping[str, str], known: tuple[str, ...]) -> Source:
    if "uri" not in options:
        raise AuditError("the option uri is missing: kafka://HOST:PORT, delta://, parquet:// or file://")
    return open_source(options["uri"], options, known)


class RecordsStream(SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {"topic": its id, "next": {partition: offset}}."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options, self.schema = dict(options), schema
        self.source = _source(self.options, STREAM)
        self.until: dict[int, int] | None = None
        """End offsets at the begin of a query that reads only the records of that moment."""

    def initialOffset(self) -> dict[str, Any]:
        bounds = self.source.bounds()
        starts = starting_offsets(self.options, bounds)
        return self._offset({p: max(low, starts.get(p, low)) for p, (low, _) in bounds.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        most = int(self.options.get("max_records", 0))
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.until = {p: high for p, (_, high) in self.source.bounds().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        topic, begins, until = self.source.identity(), _next(start), self.until or {}
        if topic and start["topic"] and topic != start["topic"]:
            raise AuditError(f"{self.source.shown} was re-created: begin with a new checkpoint, and keep what there is")
        ranges = {p: (a, max(a, min(b, until.get(p, b)))) for p, (a, b) in self._unread(begins).items()}
        if isinstance(limit, ReadMaxRows):
            ranges = limited(ranges, limit.max_rows)
        return self._offset({**begins, **{p: b for p, (_, b) in ranges.items()}}, start["topic"])

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._offset({p: high for p, (_, high) in self.source.bounds().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ends = _next(end)
        ranges = {p: (a, min(b, ends[p])) for p, (a, b) in self._unread(_next(start), ends).items() if p in ends}
        return [InputPartition(s) for s in self.source.splits({p: (a, b) for p, (a, b) in ranges.items() if a < b})]

    def _offset(self, following: dict[int, int], topic: str | None = None) -> dict[str, Any]:
        known = self.source.identity() if topic is None else topic
        return {"topic": known, "next": {str(p): n for p, n in sorted(following.items())}}

    def _unread(self, begins: Mapping[int, int], ends: Mapping[int, int] | None = None) -> Ranges:
        """Returns each partition's offsets that are not read yet, perhaps none. `ends`: offsets up to which a batch was
        planned. Raises AuditError if some of them are gone, unless fail_on_data_loss is false."""
        bounds = self.source.bounds()
        for p, begin in begins.items() if self.options.get("fail_on_data_loss", "true").lower() == "true" else ():
            low, high = bounds.get(p, (0, 0))
            last = max(begin, (ends or {}).get(p, 0))
            if begin < low:
                why = f"begins at {low}, but {begin} was to be read next; what is between is lost"
            elif last > high:
                why = f"ends at {high}, but it once had records up to {last}; it was cut short or made anew"
            else:
                continue
            raise AuditError(
                f"{self.source.shown}: partition {p} {why}. To go on without it, set fail_on_data_loss to false; to"
                " read all that is there now, begin with a new checkpoint"
            )
        return {p: (min(max(low, begins.get(p, low)), high), high) for p, (low, high) in bounds.items()}


def _next(offset: dict[str, Any]) -> dict[int, int]:
    return {int(p): n for p, n in offset["next"].items()}


class GroupStateRecords(DataSource):
    @classmethod
    def name(cls) -> str:
        return "group_state_records"

    def schema(self) -> StructType | str:
        return BRONZE.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return RecordsReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RecordsStream(self.options, schema)
