"""Reader of one partition of the state topic, to its end and without Spark, for questions about one group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from sidecar.audit.source.topic import TopicReader
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import OWNER_CLAIM, SCHEMA, StateCodec
from sidecar.state.fold import EPOCH_DIGITS
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import Schemas, StateError

Row = dict[str, Any]
"""A record, with the columns that `row_of` fills. `body`: the value, None of a tombstone."""
NUMBER = f"[0-9]{{1,{EPOCH_DIGITS}}}"
COMMON = ("owner_epoch", "revision", "why")


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


class Reader(TopicReader):
    """A reader of groups' records."""

    def of_group(self, group_id: str) -> Iterator[Row]:
        """Yields this group's records and the claims of its partition, in the order of the log. Raises AuditError."""
        return self.read_group(group_id).rows()

    def read_group(self, group_id: str) -> RecordsRead:
        """Returns the records of `of_group`, not decoded. Raises AuditError."""
        p = partition_for(group_id, self.partitions())
        return self.read(p, lambda key: key.group_id == group_id or key.kind == OWNER_CLAIM)

    def read(self, partition: int, wanted: Any = lambda key: True, after: RecordsRead | None = None) -> RecordsRead:
        """Returns the records whose key is `wanted` or cannot be read, not decoded, and all schemas. With `after`, only
        those that came after that earlier read, unless the topic was made anew meanwhile. Raises AuditError.

        Compaction keeps the last copy of a schema, perhaps behind values that need it: so decoding waits for all."""
        low, high = self.bounds_of(partition)
        if after is None or high < after.end:
            taken = RecordsRead(partition, anew=after is not None)
        else:
            taken = RecordsRead(partition, schemas=after.schemas, end=after.end)
        begin = max(low, taken.end)
        taken.end = max(begin, high)
        for m in chain.from_iterable(self.messages(partition, begin, high)):
            key = _key(m)
            if key is not None and key.kind == SCHEMA:
                _learn(taken.schemas, m)
            elif key is None or wanted(key):
                headers = {name: value.decode(errors="replace") for name, value in m.headers() or () if value}
                taken.records.append(Raw(m.offset(), m.timestamp()[1], key, m.value(), headers))
        return taken


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
