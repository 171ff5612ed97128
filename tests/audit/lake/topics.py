"""State topics of a real broker, filled as a sidecar fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.processes import wait_until
from sidecar.state.codec import Encoded
from tests.audit.lake.making import T0

LAG_MS = 7 * 24 * 3_600_000


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 3, **more: str) -> str:
        """Returns its URI. `more`: settings of the topic."""
        settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(LAG_MS), **more}
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        made[name].result(30)
        return f"kafka://{self.bootstrap}/{name}"

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def forget(self, name: str, partition: int, before: int) -> None:
        """Deletes the records before this offset."""
        for future in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            future.result(30)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})
        place = TopicPartition(name, partition)
        wait_until("the records to go", lambda: consumer.get_watermark_offsets(place, timeout=10)[0] == before, 20)
        consumer.close()

    def write(self, name: str, logs: Mapping[int, Sequence[Encoded]], first_ms: int = T0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 0})
        for p, entries in logs.items():
            for i, e in enumerate(entries):
                producer.produce(name, e.value, e.key, p, timestamp=first_ms + i, headers=list(e.headers))
        assert producer.flush(60) == 0
