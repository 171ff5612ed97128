"""The live state topic as a source of bronze records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_END, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from sidecar.audit.errors import AuditError, Misused
from sidecar.audit.lake.batch import Ranges
from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import record_of
from sidecar.audit.source.options import Split
from sidecar.audit.source.topic import FIXED, LIBRARY, TIMEOUT_S, WAIT_S, TopicReader, unanswered
from sidecar.kafka.errors import SecurityError
from sidecar.kafka.properties import librdkafka_of
from sidecar.kafka.waiting import in_slices

TOPIC = "__group_state"
RECORDS_PER_TASK = 500_000
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


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

    def opened(self) -> TopicReader:
        """Returns a reader of the topic. Raises AuditError."""
        return TopicReader(self.bootstrap, self.topic, self.config())

    @property
    def shown(self) -> str:
        return f"kafka://{self.bootstrap}/{self.topic}"

    def identity(self) -> str:
        """Returns the topic's id, which a re-created topic changes; empty if its brokers give topics no ids."""
        described = self._asked(AdminClient.describe_topics, TopicCollection([self.topic]), "its id", "Describe")
        return "" if str(described.topic_id) == NO_ID else str(described.topic_id)

    def setting(self, name: str) -> str | None:
        """Returns a setting of the topic; None if it has none of that name. Raises AuditError."""
        resources = [ConfigResource(ResourceType.TOPIC, self.topic)]
        entry = self._asked(AdminClient.describe_configs, resources, "its settings", "DescribeConfigs").get(name)
        return None if entry is None else entry.value

    def _asked(self, ask: Callable[..., Mapping[Any, Any]], topics: Any, what: str, right: str) -> Any:
        """Returns the answer of a method of AdminClient about this one topic. Raises AuditError."""
        admin = AdminClient(self.config())  # must outlive its response
        try:
            (future,) = ask(admin, topics, request_timeout=TIMEOUT_S).values()
            return future.result()
        except KafkaException as exc:
            raise unanswered(self.shown, what, exc, right=right) from exc

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns each partition's first offset, and the next one to be written."""
        with self.opened() as topic:
            return topic.bounds()

    def splits(self, ranges: Ranges) -> list[Split]:
        size = self.records_per_task
        return [
            partial(self.read, p, at, min(at + size, end))
            for p, (start, end) in sorted(ranges.items())
            for at in range(start, end, size)
        ]

    def read(self, partition: int, start: int, end: int) -> Iterator[Any]:
        """Yields the records of the offsets [start, end) as rows of bronze. Raises AuditError."""
        with self.opened() as topic:
            for messages in topic.messages(partition, start, end, WAIT_S):
                yield bronze_batch([record_of(m) for m in messages])

    def from_time(self, partitions: list[int], ms: int) -> dict[int, int]:
        """Returns for each partition an offset before which all records have an earlier log time than `ms`."""
        times = [TopicPartition(self.topic, p, max(0, ms - 1)) for p in partitions]
        with self.opened() as topic, topic.asked("offsets by their times"):
            offsets = in_slices(lambda s: topic.consumer.offsets_for_times(times, timeout=s), TIMEOUT_S)
            wrong = next((t.error for t in offsets if t.error is not None), None)
            if wrong is not None:
                raise KafkaException(wrong)
            return {t.partition: (1 << 62 if t.offset in (-1, OFFSET_END) else t.offset) for t in offsets}

    def first_times(self, ranges: Ranges) -> dict[int, int]:
        """Returns the log time of the first record in each partition's range; partitions without one are left out."""
        with self.opened() as topic:
            return topic.first_times(ranges)
