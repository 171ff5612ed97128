"""One partition of the state topic, read to its end without Spark: for questions about one group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sidecar.core.placement import partition_for
from sidecar.state.codec import OWNER_CLAIM, SCHEMA, StateCodec
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import Schemas, StateError

Row = dict[str, Any]
"""One record, with the columns of docs/audit.md's raw records."""
TIMEOUT_S = 30.0
AT_ONCE = 5_000
COMMON = ("owner_epoch", "time_ms", "revision", "why")


class TopicError(Exception):
    """The state topic cannot be read; the text says why."""


@dataclass(frozen=True)
class Where:
    """`config`: properties of librdkafka for the connection: security and so on."""

    bootstrap: str
    topic: str
    config: Mapping[str, str]


class Reader:
    """Use as a context manager."""

    def __init__(self, where: Where) -> None:
        from confluent_kafka import Consumer

        self._topic, self._bootstrap = where.topic, where.bootstrap
        fixed = {
            "bootstrap.servers": where.bootstrap,
            "group.id": "group-state-history-is-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            # A fetch at the end of one partition holds back the first one of the next partition for this long.
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
        self._consumer: Any = Consumer({**where.config, **fixed})

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()

    def partitions(self) -> int:
        """How many the topic has. Raises TopicError."""
        from confluent_kafka import KafkaException

        try:
            found = self._consumer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        except KafkaException as exc:
            raise TopicError(f"{self._bootstrap}: {exc.args[0].str()}") from None
        if found.error is not None:
            raise TopicError(f"{self._topic}: {found.error.str()}. Is this the cluster, and may this user read it?")
        return len(found.partitions)

    def of_group(self, group_id: str) -> Iterator[Row]:
        """What concerns this group: its own records, and the claims of its partition, in the order of the log."""
        p = partition_for(group_id, self.partitions())
        return self.rows(p, lambda key: key.group_id == group_id or key.kind == OWNER_CLAIM)

    def rows(self, partition: int, wanted: Any = lambda key: True) -> Iterator[Row]:
        """Those whose key is `wanted`. A record that cannot be read is a row with a `problem`. Raises TopicError.

        Compaction keeps the last copy of a schema, which may stand behind values that need it: so all is read first."""
        from confluent_kafka import TopicPartition

        here = TopicPartition(self._topic, partition)
        low, high = self._consumer.get_watermark_offsets(here, timeout=TIMEOUT_S)
        if low >= high:
            return
        self._consumer.assign([TopicPartition(self._topic, partition, low)])
        schemas, kept = StateCodec().schemas, []
        at = low
        while at < high:
            for m in self._arrived(partition, at):
                if self._ended(m, partition):
                    at = max(at, m.offset())
                    continue
                at = m.offset() + 1
                key = _key(m)
                if key is not None and key.kind == SCHEMA:
                    _learn(schemas, m)
                elif key is None or wanted(key):
                    kept.append((m, key))
        yield from (_row(partition, m, key, schemas) for m, key in kept)

    def _arrived(self, partition: int, at: int) -> list[Any]:
        """At least one message. `consume` waits for all it was asked for: it is given no time, and only the first
        is waited for."""
        first = self._consumer.poll(TIMEOUT_S)
        if first is None:
            raise TopicError(f"{self._topic}-{partition}: nothing within {TIMEOUT_S:g} s after offset {at}.")
        return [first, *self._consumer.consume(AT_ONCE, timeout=0)]

    def _ended(self, m: Any, partition: int) -> bool:
        from confluent_kafka import KafkaError

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
    """One that is damaged is missed by the values that need it, and they say so."""
    with suppress(StateError, UnicodeDecodeError):
        schemas.learn((m.value() or b"").decode())


def _row(partition: int, m: Any, key: StateKey | None, schemas: Schemas) -> Row:
    said = key or StateKey("", "", "")
    row: Row = {"partition": partition, "offset": m.offset(), "time_ms": m.timestamp()[1], "kind": said.kind}
    row |= {"group_id": said.group_id, "sub_id": said.sub_id, "tombstone": m.value() is None, "why": "", "body": None}
    row |= {"owner_epoch": None, "revision": None}
    if key is None:
        return row | {"problem": "the key cannot be read"}
    raw = m.value()
    if raw is None:
        told = {name: value.decode(errors="replace") for name, value in m.headers() or () if value is not None}
        row |= {name: int(told[name]) for name in ("owner_epoch", "revision") if told.get(name, "").isdigit()}
        return row | {"why": told.get("why", "")}
    try:
        body = schemas.decode(raw)
    except StateError as exc:
        return row | {"problem": str(exc)}
    common = {name: body.pop(name) for name in COMMON if name in body}
    row |= {name: value for name, value in common.items() if name != "time_ms"}
    return row | {"body": json.dumps(_plain(body))}


def _plain(value: Any) -> Any:
    """As JSON can say it: ids in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value
