"""Every sidecar tails every partition of `__group_state` and keeps the last value of each key, as bytes.

So a takeover has nothing to fetch: it waits until the tail has passed its own claim. A thread of librdkafka
reads, the event loop applies.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA, owner_epoch_of
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import StateError


@dataclass(slots=True)
class TailPartition:
    """`position` is the next offset to come. `groups`: group id -> key -> value bytes."""

    position: int = 0
    records: int = 0
    claimed: int = -1
    stale: int = 0
    """Records of an owner before the last claim: fencing should have kept them out, so they are void."""
    groups: dict[str, dict[StateKey, bytes]] = field(default_factory=dict)
    claims: dict[str, bytes] = field(default_factory=dict)
    configs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Group id ("" for brokers) -> name -> value."""
    schemas: set[str] = field(default_factory=set)
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    def apply(self, offset: int, key: StateKey, value: bytes | None) -> None:
        self.position = offset + 1
        self.records += 1
        if key.kind == OWNER_CLAIM:
            if value is not None:
                self.claims[key.sub_id] = value
                self.claimed = max(self.claimed, int(key.sub_id))
            else:
                self.claims.pop(key.sub_id, None)
        elif key.kind == SCHEMA:
            if value is not None:
                self.schemas.add(key.sub_id)
        elif key.kind == CONFIG:
            if value is not None:
                self.configs.setdefault(key.group_id, {})[key.sub_id] = value
            elif (settings := self.configs.get(key.group_id)) is not None:
                settings.pop(key.sub_id, None)
                if not settings:
                    del self.configs[key.group_id]
        elif value is not None and owner_epoch_of(value) < self.claimed:
            self.stale += 1
        elif value is None:
            group = self.groups.get(key.group_id)
            if group is not None:
                group.pop(key, None)
                if not group:
                    del self.groups[key.group_id]
        else:
            self.groups.setdefault(key.group_id, {})[key] = value


SLICE = 200
"""Records handed to the event loop at once."""

Item = tuple[int, int, StateKey | None, bytes | None]


class Tail:
    """`on_schema(text)` is told of schemas that stand in the topic, `on_config(group id)` of changed settings,
    `on_error(text)` of trouble worth a log line, `on_broken` of an exception that ended the thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        client_id: str,
        on_schema: Callable[[str], None],
        on_error: Callable[[str], None],
        on_broken: Callable[[BaseException], None],
        on_config: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self.partitions = [TailPartition() for _ in range(partitions)]
        self._on_schema = on_schema
        self._on_error = on_error
        self._on_broken = on_broken
        self._on_config = on_config
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._config = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": f"{topic}-tail-is-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 250,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "allow.auto.create.topics": False,
            "log_level": 2,
        }
        self._thread = threading.Thread(target=self._guarded, name="state-tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    async def wait_past(self, partition: int, offset: int) -> None:
        """Until the record at `offset` has been applied."""
        tail = self.partitions[partition]
        if tail.position > offset:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        tail.waiters.append((offset, future))
        await future

    # ---- the thread ---------------------------------------------------------------------------------------
    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as exc:  # noqa: BLE001 - the thread's end must be seen: the process ends with it
            self._post(self._on_broken, exc)

    def _run(self) -> None:
        consumer = Consumer(self._config)
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(len(self.partitions))])
        while not self._stop.is_set():
            try:
                # `consume` would wait for its whole count or timeout: take the first as it comes, then what is there.
                first = consumer.poll(0.2)
                messages = [] if first is None else [first, *consumer.consume(SLICE, 0)]
            except KafkaException as exc:
                self._post(self._on_error, str(exc))
                continue
            if messages:
                self._post(self._apply, [self._item(m) for m in messages])
        consumer.close()

    def _post(self, fn: Callable[..., None], arg: object) -> None:
        try:
            self._loop.call_soon_threadsafe(fn, arg)
        except RuntimeError:
            self._stop.set()  # the loop is closed: the process is ending

    def _item(self, m: Message) -> Item:
        error = m.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._post(self._on_error, str(error))
            return (-1, -1, None, None)
        partition, offset = m.partition(), m.offset()
        assert partition is not None and offset is not None
        raw = m.key()
        try:
            key = decode_key(raw if isinstance(raw, bytes) else b"")
        except StateError as exc:
            self._post(self._on_error, f"{self.topic}-{partition}@{offset}: {exc}")
            return (partition, offset, None, None)
        value = m.value()
        return (partition, offset, key, value if isinstance(value, bytes) else None)

    # ---- the event loop -----------------------------------------------------------------------------------
    def _apply(self, items: list[Item]) -> None:
        touched: set[int] = set()
        for partition, offset, key, value in items:
            if partition < 0:
                continue
            tail = self.partitions[partition]
            touched.add(partition)
            if key is None:
                tail.position = offset + 1
                continue
            if key.kind == SCHEMA and value is not None:
                self._on_schema(value.decode())
            tail.apply(offset, key, value)
            if key.kind == CONFIG:
                self._on_config(key.group_id)
        for partition in touched:
            tail = self.partitions[partition]
            if tail.waiters:
                due = [f for o, f in tail.waiters if tail.position > o]
                tail.waiters = [(o, f) for o, f in tail.waiters if tail.position <= o]
                for future in due:
                    if not future.done():
                        future.set_result(None)
