"""Reader of one partition of the state topic, to its end and without Spark, for questions about one group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.no_group import of_partitions
from sidecar.kafka.waiting import in_slices, log_bounds
from sidecar.state.codec import OWNER_CLAIM, SCHEMA, StateCodec
from sidecar.state.fold import EPOCH_DIGITS
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import Schemas, StateError

Row = dict[str, Any]
"""A record, with the columns that `row_of` fills. `body`: the value, None of a tombstone."""
TIMEOUT_S = 30.0
AT_ONCE = 5_000
NUMBER = f"[0-9]{{1,{EPOCH_DIGITS}}}"
COMMON = ("owner_epoch", "revision", "why")


class TopicError(Exception):
    """The state topic cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A record. `time_ms`: its Kafka timestamp; `key`: None if it is unreadable; `headers`: only on tombstones."""

    offset: int
    time_ms: int
    key: StateKey | None
    value: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner_epoch(self) -> int:
        """The owner epoch in a tombstone's headers; -1 if they have none, and for records with a value."""
        return -1 if self.value is not None else self.numbers().get("owner_epoch", -1)

    def numbers(self) -> dict[str, int]:
        """Returns the numbers in a tombstone's headers. A header may be any bytes; no number has more digits than an
        owner epoch."""
        named = ((name, self.headers.get(name, "")) for name in ("owner_epoch", "revision"))
        return {n: int(text) for n, text in named if re.fullmatch(NUMBER, text)}


@dataclass(slots=True)
class RecordsRead:
    """Records of one partition in the order of the log, and the schemas of their values."""

    partition: int
    records: list[Raw] = field(default_factory=list)
    schemas: Schemas = field(default_factory=lambda: StateCodec().schemas)
    end: int = 0
    """Offset behind the last one that was read."""
    anew: bool = False
    """Whether the log ended before the earlier read did: the topic was made anew, and all of it was read."""

    def rows(self) -> Iterator[Row]:
        return (row_of(raw, self.schemas) for raw in self.records)

    def about_topic(self, topic: str) -> dict[str, RecordsRead]:
        """Returns the records of each group that names this topic, or a longer name that contains it, with all claims.

        A value contains a name as plain bytes, so the other groups' values need no decoding."""
        name = topic.encode()
        named = {r.key.group_id for r in self.records if r.key is not None and r.value is not None and name in r.value}
        groups = {group_id: RecordsRead(self.partition, schemas=self.schemas) for group_id in sorted(named - {""})}
        for raw in self.records:
            group_id = "" if raw.key is None else raw.key.group_id
            for taken in groups.values() if not group_id else filter(None, (groups.get(group_id),)):
                taken.records.append(raw)
        return groups


class Reader:
    """A context manager with a consumer of the state topic."""

    def __init__(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
        """`config`: librdkafka's properties for the connection, such as security."""
        self._topic, self._bootstrap = topic, bootstrap
        fixed = {
            "bootstrap.servers": bootstrap,
            "group.id": "group-state-history-is-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            # A fetch at the end of one partition holds back the first one of the next partition for this long.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,  # as in source/kafka.py
            "log_level": 2,
        }
        self._consumer: Any = Consumer({**config, **fixed})

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()

    def partitions(self) -> int:
        """Returns the topic's number of partitions. Raises TopicError."""
        try:
            answer = in_slices(lambda s: self._consumer.list_topics(self._topic, timeout=s), TIMEOUT_S)
            metadata = answer.topics[self._topic]
        except KafkaException as exc:
            raise TopicError(f"{self._bootstrap}: {exc.args[0].str()}") from None
        if metadata.error is not None:
            raise TopicError(f"{self._topic}: {metadata.error.str()}. Is this the cluster, and may this user read it?")
        return len(metadata.partitions)

    def of_group(self, group_id: str) -> Iterator[Row]:
        """Yields this group's records and the claims of its partition, in the order of the log. Raises TopicError."""
        return self.read_group(group_id).rows()

    def read_group(self, group_id: str) -> RecordsRead:
        """Returns the records of `of_group`, not decoded. Raises TopicError."""
        p = partition_for(group_id, self.partitions())
        return self.read(p, lambda key: key.group_id == group_id or key.kind == OWNER_CLAIM)

    def read(self, partition: int, wanted: Any = lambda key: True, after: RecordsRead | None = None) -> RecordsRead:
        """Returns the records whose key is `wanted` or cannot be read, not decoded, and all schemas. With `after`, only
        those that came after that earlier read, unless the topic was made anew meanwhile. Raises TopicError.

        Compaction keeps the last copy of a schema, perhaps behind values that need it: so decoding waits for all."""
        low, high = self._bounds(TopicPartition(self._topic, partition))
        if after is None or high < after.end:
            taken = RecordsRead(partition, anew=after is not None)
        else:
            taken = RecordsRead(partition, schemas=after.schemas, end=after.end)
        at = max(low, taken.end)
        taken.end = max(at, high)
        if at >= high:
            return taken
        self._consumer.assign([TopicPartition(self._topic, partition, at)])
        while at < high:
            for m in self._arrived(partition, at):
                if self._ended(m, partition):
                    at = max(at, m.offset())
                    continue
                at = m.offset() + 1
                key = _key(m)
                if key is not None and key.kind == SCHEMA:
                    _learn(taken.schemas, m)
                elif key is None or wanted(key):
                    headers = {name: value.decode(errors="replace") for name, value in m.headers() or () if value}
                    taken.records.append(Raw(m.offset(), m.timestamp()[1], key, m.value(), headers))
        return taken

    def _bounds(self, here: Any) -> tuple[int, int]:
        try:
            return log_bounds(self._consumer, here, TIMEOUT_S)
        except KafkaException as exc:
            raise TopicError(f"{self._topic}-{here.partition}: {exc.args[0].str()}") from None

    def _arrived(self, partition: int, at: int) -> list[Any]:
        """Returns the messages that have arrived, at least one. Waits only for the first: with a timeout `consume`
        would wait for AT_ONCE messages. Raises TopicError."""
        first = self._consumer.poll(TIMEOUT_S)
        if first is None:
            raise TopicError(f"{self._topic}-{partition}: nothing within {TIMEOUT_S:g} s after offset {at}.")
        return of_partitions([first, *self._consumer.consume(AT_ONCE, timeout=0)])

    def _ended(self, m: Any, partition: int) -> bool:
        error = m.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        raise TopicError(f"{self._topic}-{partition}: {error.str()}")


def _key(m: Any) -> StateKey | None:
    try:
        return decode_key(m.key() or b"")
    except StateError:
        return None


def _learn(schemas: Schemas, m: Any) -> None:
    """Adds a schema. A damaged one is skipped; values that need it then fail to decode."""
    with suppress(StateError, UnicodeDecodeError):
        schemas.learn((m.value() or b"").decode())


def row_of(raw: Raw, schemas: Schemas) -> Row:
    """Returns the record as a row, with a `problem` if it cannot be read."""
    row: Row = {"offset": raw.offset, "time_ms": raw.time_ms, "owner_epoch": None, "revision": None, "why": ""}
    row |= (raw.key or StateKey("", "", ""))._asdict() | {"body": None}
    if raw.key is None:
        return row | {"problem": "the key cannot be read"}
    if raw.value is None:
        return row | raw.numbers() | {"why": raw.headers.get("why", "")}
    try:
        body = schemas.decode(raw.value)
    except StateError as exc:
        return row | {"problem": str(exc)}
    body.pop("time_ms", None)  # the writer's time; that of a row is the log's
    row |= {name: body.pop(name) for name in COMMON if name in body}
    return row | {"body": body}
