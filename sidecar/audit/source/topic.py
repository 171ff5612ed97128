"""Reader of the state topic's partitions, for all that read it: the audit, questions about one group, and dumps.

Needs nothing that `pip install kafka-group-sidecar[audit]` adds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.audit.errors import AuditError, NoTopic
from sidecar.kafka.no_group import of_partitions
from sidecar.kafka.waiting import in_slices, log_bounds

TIMEOUT_S = 30.0
WAIT_S = 0.1
AT_ONCE = 8_192
"""Messages in a list, at most."""
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
LIBRARY = {
    "log_level": "2",
    "fetch.message.max.bytes": "8388608",
    "queued.min.messages": "50000",
    # A fetch at the end of one partition holds back the first one of the next partition for this long.
    "fetch.wait.max.ms": "10",
    # A task takes this queue empty in a third of a second. By default the next fetch waits a whole one.
    "fetch.queue.backoff.ms": "10",
}

NO_RECORD = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
"""Errors of a partition that has no record from an offset on, or has that offset no more."""


class TopicReader:
    """A context manager with a consumer of the state topic."""

    def __init__(self, bootstrap: str, topic: str, config: Mapping[str, Any]) -> None:
        """`config`: librdkafka's properties for the connection, such as security. Raises AuditError."""
        self.topic, self._shown = topic, f"kafka://{bootstrap}/{topic}"
        self._trouble = ""
        """The client's last connection error."""
        named = {"bootstrap.servers": bootstrap, "error_cb": self._note}
        try:
            self.consumer: Any = Consumer({**LIBRARY, **config, **FIXED, **named})
        except KafkaException as exc:
            raise AuditError(f"a property of the Kafka client: {exc.args[0].str()}") from None

    def _note(self, error: Any) -> None:
        self._trouble = error.str()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.consumer.close()

    def partitions(self) -> int:
        """Returns the topic's number of partitions. Raises AuditError."""
        with self.asked("its partitions"):
            answer = in_slices(lambda s: self.consumer.list_topics(self.topic, timeout=s), TIMEOUT_S)
            metadata = answer.topics[self.topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            return len(metadata.partitions)

    def bounds_of(self, partition: int) -> tuple[int, int]:
        """Returns a partition's first offset, and the next one to be written. Raises AuditError."""
        with self.asked("its offsets"):
            return log_bounds(self.consumer, TopicPartition(self.topic, partition), TIMEOUT_S)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns the bounds of each partition. Raises AuditError."""
        return {p: self.bounds_of(p) for p in range(self.partitions())}

    def messages(self, partition: int, start: int, end: int, wait_s: float = 0.0) -> Iterator[list[Any]]:
        """Yields the messages of the offsets [start, end) in lists, as they arrive. `wait_s`: time in which a list may
        fill. Raises AuditError."""
        name = f"{self.topic}-{partition}"
        if start < end:
            self.consumer.assign([TopicPartition(self.topic, partition, start)])
        seen, following, ended = time.monotonic(), start, start >= end
        while not ended:
            # Waits only for the first: `consume` waits for all that it is asked for, although the partition may end.
            first = self.consumer.poll(WAIT_S)
            if first is None and time.monotonic() - seen > TIMEOUT_S:
                raise AuditError(f"{name}: nothing within {TIMEOUT_S:g} s; can the brokers be reached?")
            if first is None:
                continue
            seen = time.monotonic()
            more = self.consumer.consume(min(AT_ONCE, end - following), timeout=wait_s)
            messages = of_partitions([first, *more])
            last = [m for m in messages if m.error() is not None or m.offset() >= end - 1]
            ended = any(_ends(m, name, start, end) for m in last)
            records = [m for m in messages if m.error() is None and m.offset() < end] if last else messages
            if records:
                following = records[-1].offset() + 1
                yield records

    def first_times(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Returns the log time of the first record in each partition's range; partitions without one are left out. Asks
        for all at once: one after another takes a few round trips each. Raises AuditError."""
        waiting, times = dict(ranges), dict[int, int]()
        self.consumer.assign([TopicPartition(self.topic, p, start) for p, (start, _) in ranges.items()])
        until = time.monotonic() + TIMEOUT_S
        while waiting:
            for m in of_partitions(self.consumer.consume(len(waiting), timeout=WAIT_S)):
                p, error = m.partition(), m.error()
                if p in waiting and (error is None or error.code() in NO_RECORD):
                    if error is None and m.offset() < waiting[p][1]:
                        times[p] = m.timestamp()[1]
                    del waiting[p]
                    self.consumer.pause([TopicPartition(self.topic, p)])
            if waiting and time.monotonic() > until:
                raise AuditError(f"{self.topic}: nothing within {TIMEOUT_S:g} s; can the brokers be reached?")
        return times

    @contextmanager
    def asked(self, what: str) -> Iterator[None]:
        """Around a question for `what`. Raises AuditError, which knows the client's connection errors."""
        try:
            yield
        except KafkaException as exc:
            self.consumer.poll(WAIT_S)  # reports connection errors
            raise unanswered(self._shown, what, exc, self._trouble) from exc


def unanswered(
    shown: str, what: str, exc: KafkaException, trouble: str = "", right: str = "Describe and Read"
) -> AuditError:
    """Returns the error for a question about the topic. `trouble`: the client's connection error; `right`: without
    which right to the topic the question is refused."""
    error = exc.args[0]
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return NoTopic(f"{shown}: there is no such topic")
    denied = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    why = f"; needed: {right} of the topic" if denied else f": {trouble}" if trouble else ""
    return AuditError(f"{shown}: {what} cannot be had: {error.str()}{why}")


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
        raise AuditError(f"{name}: {error.str()}")
    return False
