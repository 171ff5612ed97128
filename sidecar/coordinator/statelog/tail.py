"""Every sidecar tails every partition of `__group_state` and keeps the last value of each key, as bytes.

So a takeover has nothing to fetch: it waits until the tail has passed its own claim. A thread of librdkafka reads,
the event loop applies.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sidecar.coordinator.statelog.catch_up import CatchUpReader, Want, some
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Key, Record, Role
from sidecar.core.runtime.registry import Group
from sidecar.core.share.records import Kind as ShareKind
from sidecar.core.share.records import PlaceholderRecord
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.ports import Figures, Logger
from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA, Encoded, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import StateKey, decode_key
from sidecar.state.schema import StateError

UNTAKEN_SLICES = 2
"""Most slices that the thread hands over before the loop has taken them. Without a limit a sidecar that starts would
apply the whole topic, and do nothing in between."""
LOOKED_AT = 64
"""Keys that `records` looks at between two steps."""
NOTE_ENDS_S = 0.5
LATE_S, FAR = 0.1, 10_000
"""Wait in seconds after which catch_up.py reads the records, and the number of records from which on it does not."""
DENIED = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.TOPIC_AUTHORIZATION_FAILED)
Item = tuple[int, int, StateKey | None, bytes | None, int]
"""Partition, offset, key, value, and for a tombstone its owner epoch, else -1. Partition -1: nothing to apply. Offset
END: the end of the partition for now, whose offset is the last value."""
END = -2
NOTHING: Mapping[StateKey, bytes] = {}
GROUP_KINDS = frozenset(name for name, row in REGISTRY.records.items() if row.record.root)
ASSIGNED = frozenset((Role.GROUP, Role.TARGET_EPOCH))
"""Roles of the records that hold the epoch of a group's last assignment."""


class Watcher(Protocol):
    """Listener for each value that replaces another one."""

    kinds: Collection[str]
    """Kinds of the keys that the watcher is called for."""

    def note(self, key: StateKey, before: bytes | None, value: bytes | None) -> None:
        """Called when `value` has replaced `before`."""


class StateLog:
    """The tail's copy of the state topic, and core/runtime/owner.py's view of it. It also keeps the revision of each
    key that was decoded, for the records that the owner will write."""

    def __init__(self, partitions: int, codec: StateCodec, log: Logger, figures: Figures) -> None:
        self.partitions = [PartitionFold() for _ in range(partitions)]
        self.revisions: list[dict[Key, int]] = [{} for _ in range(partitions)]
        self.applied_early: list[dict[int, tuple[StateKey | None, bytes | None]]] = [{} for _ in range(partitions)]
        """By partition: offset -> a record that was applied before the tail has read it."""
        self.late: Callable[[int, int], None] = lambda partition, offset: None
        """Called with partition and offset when a takeover or request has waited for this record for LATE_S."""
        self.came_or_went: Callable[[int, str], None] = lambda partition, group_id: None
        """Called with partition and group when the group's first record has come, or its last one has gone."""
        self.watcher: Watcher | None = None
        self.ends = [0] * partitions
        """By partition: offset at which the tail last found the end. After the last record there may be a transaction's
        marker, which is no record and has an offset."""
        self.codec = codec
        self._log = log
        self.reported_ends: list[int] = []
        """By partition: end of the log in the brokers' last answers to the tail."""
        figures("void_records").set_function(lambda: sum(p.owners.void for p in self.partitions))
        figures("tail_lag").set_function(self.behind)
        self._waiters: list[list[tuple[int, asyncio.Future[None]]]] = [[] for _ in range(partitions)]

    def groups(self, partition: int) -> Collection[str]:
        return self.partitions[partition].groups

    def size(self, partition: int, group_id: str) -> int:
        return len(self.partitions[partition].groups.get(group_id, ()))

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        """Yields the group's records in the order of a rebuild, after some None while their keys are sorted. Raises
        InvariantError at a record that cannot be decoded: without it, the others would give another state."""
        revisions = self.revisions[partition]
        order_of = self.codec.registry.order
        by_order: dict[int, list[tuple[StateKey, bytes]]] = {}
        for i, item in enumerate(self.partitions[partition].groups.get(group_id, {}).items(), 1):
            by_order.setdefault(order_of(item[0].kind), []).append(item)
            if i % LOOKED_AT == 0:
                yield None
        for key, value in (item for order in sorted(by_order) for item in by_order[order]):
            try:
                record, revision = self.codec.decode(key, value)
            except StateError as exc:
                raise InvariantError(f"{key}: {exc}") from exc
            revisions[(key.kind, key.group_id, key.sub_id)] = revision
            yield record

    def changed_ms(self, partition: int, group_id: str) -> int | None:
        """Returns the Unix time in ms of the last record of the group itself, with which its last rebalance began or
        went on. None: there is no such record, or it cannot be read."""
        for key, value in self.partitions[partition].groups.get(group_id, NOTHING).items():
            if self.codec.registry.role(key.kind) is Role.GROUP:
                try:
                    return int(self.codec.schemas.decode(value)["time_ms"].timestamp() * 1000)
                except StateError:
                    return None
        return None

    def last_reason(self, group_id: str) -> str:
        """Returns the reason in the last record of the group itself; "" if it has none."""
        fold = self.partitions[partition_for(group_id, len(self.partitions))]
        for key, value in fold.groups.get(group_id, NOTHING).items():
            if key.kind in GROUP_KINDS:
                try:
                    return str(getattr(self.codec.decode(key, value)[0], "why", ""))
                except StateError:
                    continue
        return ""

    def last_assignment(self, group_id: str) -> int:
        """Returns generation or epoch of the group's last assignment; -1 if there is none, or it cannot be read."""
        fold = self.partitions[partition_for(group_id, len(self.partitions))]
        registry = self.codec.registry
        group: Group | None = None
        for key, value in fold.groups.get(group_id, NOTHING).items():
            if registry.role(key.kind) in ASSIGNED:
                try:
                    group = registry.replayed(self.codec.decode(key, value)[0], group)
                except (StateError, InvariantError):
                    continue
        return -1 if group is None else int(registry.kinds[group.kind].inspect.facts(group)["assignment_epoch"])

    def share_placeholders(self) -> list[tuple[int, str, str]]:
        """Returns partition, group, and member id of each placeholder in a broker's share group."""
        placeholders = []
        for p, part in enumerate(self.partitions):
            for group_id, values in part.groups.items():
                for key in [k for k in values if k.kind == ShareKind.PLACEHOLDER]:
                    try:
                        record, _ = self.codec.decode(key, values[key])
                    except StateError:
                        continue
                    if isinstance(record, PlaceholderRecord) and record.member_id:
                        placeholders.append((p, group_id, record.member_id))
        return placeholders

    async def wait_applied(self, partition: int, offset: int) -> None:
        """Waits until the record at `offset` has been applied, or the tail has found that there is none."""
        if self._read(partition) > offset:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiter = offset, future
        self._waiters[partition].append(waiter)
        late = loop.call_later(LATE_S, lambda: self.late(partition, offset))
        try:
            await future
        finally:
            late.cancel()
            if waiter in self._waiters[partition]:  # the wait was given up
                self._waiters[partition].remove(waiter)

    def _read(self, partition: int) -> int:
        """Returns the offset up to which the tail has seen everything."""
        return max(self.partitions[partition].position, self.ends[partition])

    def behind(self) -> int:
        """Returns the number of offsets that the tail has not read yet."""
        return sum(max(0, end - self._read(p)) for p, end in enumerate(self.reported_ends))

    def apply(
        self, partition: int, offset: int, key: StateKey | None, value: bytes | None, owner_epoch: int = -1
    ) -> None:
        fold = self.partitions[partition]
        if key is None:
            fold.position = offset + 1
        else:
            if key.kind == SCHEMA and value is not None:
                self._learn(partition, offset, value)
            there = key.group_id in fold.groups
            if self.watcher is not None and key.kind in self.watcher.kinds:
                before = fold.groups.get(key.group_id, NOTHING).get(key)
                fold.apply(offset, key, value, owner_epoch)
                if before is not value and fold.groups.get(key.group_id, NOTHING).get(key) is value:
                    self.watcher.note(key, before, value)
            else:
                fold.apply(offset, key, value, owner_epoch)
            if there != (key.group_id in fold.groups):
                self.came_or_went(partition, key.group_id)

    def _learn(self, partition: int, offset: int, value: bytes) -> None:
        """Learns a schema. One that cannot be read only makes the values with it unreadable."""
        try:
            self.codec.schemas.learn(value.decode())
        except (StateError, UnicodeDecodeError) as exc:
            self._log.error("a schema in the state topic cannot be read", at=f"{partition}@{offset}", error=str(exc))

    def wrote(self, partition: int, offset: int, records: Sequence[Encoded]) -> None:
        """Applies records that this sidecar has written, the first at `offset`, if the tail has read all before: then
        no other sidecar has written in between, and nothing is left to be read. The tail reads them later."""
        if offset != self.partitions[partition].position:
            return
        for at, record in enumerate(records, offset):
            key = decode_key(record.key)
            self.applied_early[partition][at] = (key, record.value)
            self.apply(partition, at, key, record.value)
        self.wake(partition)

    def wake(self, partition: int) -> None:
        """Ends the waits for offsets that were reached."""
        waiting = self._waiters[partition]
        if waiting:
            position = self._read(partition)
            self._waiters[partition] = [(o, f) for o, f in waiting if position <= o]
            for offset, future in waiting:
                if position > offset and not future.done():
                    future.set_result(None)


class Listener(Protocol):
    """Listener for the tail's findings, called on the event loop."""

    def setting_stored(self, group_id: str, name: str) -> None:
        """Called when a setting of this group, or of brokers for "", was written to the topic, or removed."""

    def claim_read(self, partition: int) -> None:
        """Called when the tail has read a claim of this partition, by any sidecar."""

    def tail_read(self, partition: int) -> None:
        """Called when the tail has reached the end of this partition."""

    def tail_went_back(self, partition: int) -> None:
        """Called at a record with an offset that was read before: the log has lost records that this sidecar has."""

    def tail_trouble(self, text: str) -> None: ...

    def tail_broke(self, exc: BaseException) -> None:
        """Called when the thread has ended by an exception, which is a bug."""


class Tail:
    """The tail's thread. It starts at once and reads from the beginning."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        client_id: str,
        log: StateLog,
        listener: Listener,
        security: Mapping[str, Any] | None = None,
        group: str = "",
        denied: Callable[[int, str], None] = lambda code, text: None,
    ) -> None:
        """`security`: properties of librdkafka; `group`: a group that this principal may READ. It is never joined, but
        librdkafka looks up its coordinator, again and again if that is refused. `denied`: called, on the loop, with the
        code and text of each refusal."""
        self.topic = topic
        self._log = log
        self._listener = listener
        self._denied = denied
        self._newly: dict[str, Any] | None = None
        """Another configuration with new credentials, which the next consumer takes; None: there is none."""
        self._security = dict(security or {})
        """The credentials last taken in."""
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._room = threading.Semaphore(UNTAKEN_SLICES)
        self._base: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": group or f"{topic}-tail-is-no-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 250,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # When a broker dies, a takeover waits until the tail has found the new leader of the partition.
            "topic.metadata.refresh.fast.interval.ms": 50,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "allow.auto.create.topics": False,
            "log_level": 2,
        }
        self._config = self._base | self._security
        self._catch_up = CatchUpReader(
            self._config,
            topic,
            taken=lambda messages: self._post(self._apply_early, [self._item(m) for m in messages]),
            trouble=lambda text: self._post(listener.tail_trouble, text),
            broke=lambda exc: self._post(listener.tail_broke, exc),
        )
        log.late = self._late
        self._note_again_s = 0.0
        self._thread = threading.Thread(target=self._guarded, name="state-tail", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._catch_up.stop()
        self._thread.join(timeout=2)

    def secure(self, security: Mapping[str, Any]) -> None:
        """Takes in credentials that were read again. If they are new, the thread goes on with another consumer at the
        same position."""
        if _comparable(security) != _comparable(self._security):
            self._security = dict(security)
            self._newly = self._base | self._security  # and nothing of the former ones
            self._catch_up.configure(self._newly)

    def _late(self, partition: int, offset: int) -> None:
        position = self._log.partitions[partition].position
        if position <= offset < position + FAR:
            self._catch_up.read(Want(partition, position, offset))

    # ---- the thread ---------------------------------------------------------------------------------------
    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as exc:  # noqa: BLE001 - the thread's end must be seen: the coordinator ends with it
            self._post(self._listener.tail_broke, exc)

    def _run(self) -> None:
        at = [TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(len(self._log.partitions))]
        consumer = self._consumer(at)
        while not self._stop.is_set():
            if self._newly is not None:
                at = self._where(consumer, at)
                consumer.close()
                self._config, self._newly = self._newly, None
                consumer = self._consumer(at)
            try:
                messages = some(consumer, 0.2)
            except KafkaException as exc:
                self._post(self._listener.tail_trouble, str(exc))
                continue
            self._note_ends(consumer)
            if messages:
                items = [self._item(m) for m in messages]
                while not self._room.acquire(timeout=0.2):
                    if self._stop.is_set():
                        break
                self._post(self._taken, items)
        consumer.close()

    def _consumer(self, at: list[TopicPartition]) -> Consumer:
        consumer = Consumer(self._config)
        consumer.assign(at)
        return consumer

    def _where(self, consumer: Consumer, at: list[TopicPartition]) -> list[TopicPartition]:
        """Returns the positions for the next consumer: those of this one, or its first ones before any read."""
        read = {p.partition: p.offset for p in consumer.position(at)}
        return [p if read[p.partition] < 0 else TopicPartition(self.topic, p.partition, read[p.partition]) for p in at]

    def _note_ends(self, consumer: Consumer) -> None:
        """Notes the ends of the log that librdkafka has kept from the brokers' last answers, without a request. Only
        this thread may do so: during a poll the call would wait for its end, and keep the interpreter meanwhile."""
        if time.monotonic() < self._note_again_s:
            return
        self._note_again_s = time.monotonic() + NOTE_ENDS_S
        ends = []
        for p in range(len(self._log.partitions)):
            try:
                watermarks = consumer.get_watermark_offsets(TopicPartition(self.topic, p), cached=True)
            except KafkaException:  # librdkafka does not know the partition (any more)
                watermarks = None
            ends.append(watermarks[1] if watermarks else 0)
        self._log.reported_ends = ends

    def _post(self, fn: Callable[..., None], arg: object) -> None:
        try:
            self._loop.call_soon_threadsafe(fn, arg)
        except RuntimeError:
            self._stop.set()  # the loop is closed: the process is ending

    def _item(self, m: Message) -> Item:
        error, partition = m.error(), m.partition()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._post(self._listener.tail_trouble, str(error))
                if (code := error.code()) in DENIED:
                    self._post(lambda text: self._denied(code, text), error.str())
            elif partition is not None:
                end = m.offset()
                return (partition, END, None, None, -1 if end is None else end)
            return (-1, -1, None, None, -1)
        offset = m.offset()
        assert partition is not None and offset is not None
        raw = m.key()
        try:
            key = decode_key(raw if isinstance(raw, bytes) else b"")
        except StateError as exc:
            self._post(self._listener.tail_trouble, f"{self.topic}-{partition}@{offset}: {exc}")
            return (partition, offset, None, None, -1)
        value = m.value()
        if isinstance(value, bytes):
            return (partition, offset, key, value, -1)
        return (partition, offset, key, None, _header_epoch(m))

    # ---- the event loop -----------------------------------------------------------------------------------
    def _taken(self, items: list[Item]) -> None:
        self._room.release()
        self._apply(items)

    def _apply(self, items: list[Item]) -> None:
        log = self._log
        touched: set[int] = set()
        for item in items:
            partition, offset, key, value, end = item
            if partition >= 0 and offset == END:
                log.ends[partition] = end
                touched.add(partition)
                self._listener.tail_read(partition)
            elif partition >= 0:
                early = log.applied_early[partition]
                if offset < log.partitions[partition].position:
                    if early.pop(offset, None) == (key, value):
                        continue
                    self._listener.tail_went_back(partition)
                    return
                early.clear()
                touched.add(partition)
                self._apply_one(item)
        for partition in touched:
            log.wake(partition)

    def _apply_early(self, items: list[Item]) -> None:
        """Applies records that the tail has not read yet; it reads them later."""
        log = self._log
        for item in items:
            partition, offset, key, value, _ = item
            if offset >= log.partitions[partition].position:
                log.applied_early[partition][offset] = (key, value)
                self._apply_one(item)
        for partition in {item[0] for item in items}:
            log.wake(partition)

    def _apply_one(self, item: Item) -> None:
        partition, offset, key, value, owner_epoch = item
        self._log.apply(partition, offset, key, value, owner_epoch)
        if key is not None and key.kind == CONFIG:
            self._listener.setting_stored(key.group_id, key.sub_id)
        elif key is not None and key.kind == OWNER_CLAIM:
            self._listener.claim_read(partition)


def _comparable(security: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the credentials without callbacks, of which each reading makes new ones."""
    return {name: None if callable(value) else value for name, value in security.items()}


def _header_epoch(m: Message) -> int:
    """Returns the owner epoch in the headers of a tombstone; -1 without one."""
    value = dict(m.headers() or ()).get("owner_epoch")
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) <= 20 else -1
