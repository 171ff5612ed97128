"""The PySpark data source `group_state`: the decoded records of the state topic. It needs no jars.

    spark.dataSource.register(GroupStateSource)
    spark.read.format("group_state").option("bootstrap", "host:port").option("topic", "__group_state").load()

Schemas come from the topic itself. Each topic partition is one Spark partition; it ends at the offset that was the last
when the read was planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

COLUMNS = (
    "partition int, offset long, time_ms long, kind string, group_id string, sub_id string, tombstone boolean, "
    "owner_epoch long, revision long, why string, body string"
)
TIMEOUT_S = 30.0


class AuditError(Exception):
    """The topic cannot be read. The message says which partition, and why."""


class Refused(AuditError):
    """It would be refused again: somebody has to do what the message says."""


class Range(InputPartition):
    """The offsets [start, end) of one topic partition."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__(partition)
        self.partition, self.start, self.end = partition, start, end


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_jsonable(v) for v in value]
    return value


class GroupStateReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.bootstrap = options["bootstrap"]
        self.topic = options.get("topic", "__group_state")

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "group-state-audit-is-no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
                "log_level": 2,
            }
        )

    def partitions(self) -> list[InputPartition]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            found = consumer.list_topics(self.topic, timeout=TIMEOUT_S).topics[self.topic]
            if found.error is not None:
                raise AuditError(f"{self.topic}: {found.error}")
            ranges: list[InputPartition] = []
            for p in sorted(found.partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, p), timeout=TIMEOUT_S)
                if high > low:
                    ranges.append(Range(p, low, high))
            return ranges
        finally:
            consumer.close()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from confluent_kafka import KafkaError, TopicPartition

        assert isinstance(partition, Range)
        decoder = _Decoder()
        consumer = self._consumer()
        consumer.assign([TopicPartition(self.topic, partition.partition, partition.start)])
        try:
            while True:
                m = consumer.poll(TIMEOUT_S)
                if m is None:
                    raise AuditError(f"{self.topic}-{partition.partition}: nothing within {TIMEOUT_S:g} s")
                error = m.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF and m.offset() >= partition.end:
                        return
                    if error.code() == KafkaError._PARTITION_EOF:
                        continue
                    raise AuditError(f"{self.topic}-{partition.partition}: {error}")
                if m.offset() >= partition.end:
                    return
                yield decoder.row(partition.partition, m)
                if m.offset() + 1 >= partition.end:
                    return
        finally:
            consumer.close()


class _Decoder:
    """Makes the rows of one topic partition, in offset order. A schema record comes before the records that need it."""

    def __init__(self) -> None:
        from sidecar.state.schema import Schemas

        self.schemas = Schemas.empty()

    def row(self, partition: int, m: Any) -> tuple[Any, ...]:
        from sidecar.state.keys import decode_key

        key = decode_key(m.key())
        head = (partition, m.offset(), m.timestamp()[1], key.kind, key.group_id, key.sub_id)
        raw = m.value()
        if raw is None:
            headers = {k: v.decode() for k, v in (m.headers() or [])}
            epoch = int(headers["owner_epoch"]) if "owner_epoch" in headers else None
            return (*head, True, epoch, None, headers.get("why", ""), None)
        if key.kind == "schema":
            self.schemas.learn(raw.decode())
            return (*head, False, None, None, "", raw.decode())
        body = self.schemas.decode(raw)
        common = [body.pop(n) for n in ("owner_epoch", "time_ms", "revision", "why")]
        return (*head, False, common[0], common[2], common[3], json.dumps(_jsonable(body)))


class GroupStateSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "group_state"

    def schema(self) -> StructType | str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return GroupStateReader(dict(self.options))
