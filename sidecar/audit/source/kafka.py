"""The live state topic as a source of bronze records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from sidecar.audit.errors import AuditError, Misused, NoTopic
from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import record_of
from sidecar.audit.source.options import Ranges, Split
from sidecar.kafka.errors import SecurityError
from sidecar.kafka.no_group import of_partitions
from sidecar.kafka.properties import librdkafka_of
from sidecar.kafka.waiting import in_slices, log_bounds

TOPIC = "__group_state"
TIMEOUT_S = 30.0
WAIT_S = 0.1
AT_ONCE = 8_192
"""Records of an Arrow batch, at most."""
RECORDS_PER_TASK = 500_000
FIXED = {
    "group.id": "group-state-audit-is-no-group",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
}
"""Client properties that decide which records are read; options cannot set them."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
LIBRARY = {
    "log_level": "2",
    "fetch.message.max.bytes": "8388608",
    "queued.min.messages": "50000",
    # A task takes this queue empty in a third of a second. By default the next fetch waits a whole one.
    "fetch.queue.backoff.ms": "10",
}


@dataclass(frozen=True)
class KafkaSource:
    """The topic. `client`: properties that are passed to the Kafka client."""

    bootstrap: str
    topic: str
    client: Mapping[str, str]
    records_per_task: int = RECORDS_PER_TASK

    @classmethod
    def of(cls, address: str, options: Mapping[str, str]) -> KafkaSource:
        """Returns the source at an `address` HOST:PORT[,HOST:PORT...][/TOPIC]. Raises AuditError."""
        bootstrap, _, topic = address.partition("/")
        if not bootstrap:
            raise AuditError("the address has no broker: write kafka://HOST:PORT[,HOST:PORT...]")
        client = {n[len("kafka.") :]: v for n, v in options.items() if n.startswith("kafka.")}
        try:
            librdkafka_of(client)
        except SecurityError as exc:
            raise Misused(f"--command-config or kafka.NAME=VALUE: {exc}") from None
        wrong = sorted(FIXED.keys() & client.keys())
        if wrong:
            raise Misused(f"kafka.{wrong[0]} cannot be set: what is read depends on it")
        size = int(options.get("records_per_task", RECORDS_PER_TASK))
        return cls(bootstrap, topic or options.get("topic", TOPIC), client, size)

    def config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **LIBRARY, **librdkafka_of(self.client)}

    def consumer(self, trouble: list[str] | None = None) -> Any:
        """Returns a consumer. When it is polled, it adds its connection errors to `trouble`. Raises AuditError."""
        callbacks = {} if trouble is None else {"error_cb": lambda error: trouble.append(error.str())}
        try:
            return Consumer({**self.config(), **FIXED, **callbacks})
        except KafkaException as exc:
            raise AuditError(f"kafka.NAME=VALUE: {exc.args[0].str()}") from None

    @property
    def shown(self) -> str:
        return f"kafka://{self.bootstrap}/{self.topic}"

    def identity(self) -> str:
        """Returns the topic's id, which a re-created topic changes; empty if its brokers give topics no ids."""
        admin = AdminClient(self.config())
        try:
            futures = admin.describe_topics(TopicCollection([self.topic]), request_timeout=TIMEOUT_S)
            description = futures[self.topic].result()
        except KafkaException as exc:
            raise self._failed("its id", exc) from exc
        topic_id = str(description.topic_id)
        return "" if topic_id == NO_ID else topic_id

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns each partition's first offset, and the next one to be written."""
        topic = self.topic
        with self._asked("its offsets") as consumer:
            metadata = in_slices(lambda s: consumer.list_topics(topic, timeout=s), TIMEOUT_S).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            parts = sorted(metadata.partitions)
            return {p: log_bounds(consumer, TopicPartition(topic, p), TIMEOUT_S) for p in parts}

    def splits(self, ranges: Ranges) -> list[Split]:
        size = self.records_per_task
        return [
            partial(self.read, p, at, min(at + size, end))
            for p, (start, end) in sorted(ranges.items())
            for at in range(start, end, size)
        ]

    def read(self, partition: int, start: int, end: int) -> Iterator[Any]:
        """Yields the records of the offsets [start, end) as rows of bronze. Raises AuditError."""
        name = f"{self.topic}-{partition}"
        with closing(self.consumer()) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, start)])
            seen, ended, following = time.monotonic(), False, start
            while not ended:
                # `consume` waits for all the records it is asked for, although the partition may end before.
                messages = of_partitions(consumer.consume(max(1, min(AT_ONCE, end - following)), timeout=WAIT_S))
                if messages:
                    seen = time.monotonic()
                elif time.monotonic() - seen > TIMEOUT_S:
                    raise AuditError(f"{name}: nothing within {TIMEOUT_S:g} s; can the brokers be reached?")
                last = [m for m in messages if m.error() is not None or m.offset() >= end - 1]
                ended = any(_ends(m, name, start, end) for m in last)
                records = [m for m in messages if m.error() is None and m.offset() < end] if last else messages
                if records:
                    following = records[-1].offset() + 1
                    yield bronze_batch([record_of(m) for m in records])

    def from_time(self, partitions: list[int], ms: int) -> dict[int, int]:
        """Returns for each partition an offset before which all records have an earlier log time than `ms`."""
        with self._asked("offsets by their times") as consumer:
            times = [TopicPartition(self.topic, p, max(0, ms - 1)) for p in partitions]
            offsets = in_slices(lambda s: consumer.offsets_for_times(times, timeout=s), TIMEOUT_S)
            wrong = next((t.error for t in offsets if t.error is not None), None)
            if wrong is not None:
                raise KafkaException(wrong)
            return {t.partition: (1 << 62 if t.offset in (-1, OFFSET_END) else t.offset) for t in offsets}

    def setting(self, name: str) -> str | None:
        """Returns a setting of the topic; None if it has none of that name. Raises AuditError."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        admin = AdminClient(self.config())  # must outlive its response
        try:
            futures = admin.describe_configs([resource], request_timeout=TIMEOUT_S)
            entry = futures[resource].result().get(name)
        except KafkaException as exc:
            raise AuditError(f"settings of {self.topic}: {exc.args[0]}; DescribeConfigs is needed") from exc
        return None if entry is None else entry.value

    def first_times(self, ranges: Ranges) -> dict[int, int]:
        """Returns the log time of the first record in each partition's range; partitions without one are left out."""
        name, waiting, times = self.topic, dict(ranges), dict[int, int]()
        with closing(self.consumer()) as consumer:
            consumer.assign([TopicPartition(name, p, start) for p, (start, _) in ranges.items()])
            end = time.monotonic() + TIMEOUT_S
            while waiting:
                for m in consumer.consume(len(waiting), timeout=WAIT_S):
                    p, error = m.partition(), m.error()
                    if p in waiting and error is None:
                        if m.offset() < waiting[p][1]:
                            times[p] = m.timestamp()[1]
                        del waiting[p]
                        consumer.pause([TopicPartition(name, p)])
                    elif p in waiting and error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                        del waiting[p]
                if time.monotonic() > end:
                    raise AuditError(f"{name}: nothing within {TIMEOUT_S:g} s; can the brokers be reached?")
        return times

    @contextmanager
    def _asked(self, what: str) -> Iterator[Any]:
        """Yields a consumer to ask for `what`. Raises AuditError, which knows the client's connection errors."""
        trouble: list[str] = []
        with closing(self.consumer(trouble)) as consumer:
            try:
                yield consumer
            except KafkaException as exc:
                consumer.poll(WAIT_S)  # reports connection errors to `trouble`
                raise self._failed(what, exc, trouble) from exc

    def _failed(self, what: str, exc: Any, trouble: list[str] | None = None) -> AuditError:
        """Returns the error for a failed request. `trouble`: the client's connection errors."""
        error = exc.args[0]
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return NoTopic(f"{self.shown}: there is no such topic")
        denied = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        why = "; Describe and Read of the topic are needed" if denied else f": {trouble[-1]}" if trouble else ""
        return AuditError(f"{self.shown}: {what} cannot be had: {error.str()}{why}")


def _ends(m: Any, name: str, start: int, end: int) -> bool:
    """Returns whether the offsets [start, end) end with this message: a record, or an error. Raises AuditError."""
    error = m.error()
    if error is None:
        return bool(m.offset() >= end - 1)
    if error.code() == KafkaError._PARTITION_EOF:
        return bool(m.offset() >= end)
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise AuditError(f"{name}: offset {start} is not in the topic any more; was it re-created?")
    if not error.retriable() or error.fatal():
        raise AuditError(f"{name}: {error}")
    return False
