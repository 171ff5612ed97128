"""The cluster under test: it decides where members connect, who coordinates a group, and what killing that means.

With sidecars the members connect to the sidecars, and the owner of a group is a sidecar. Directly (`--direct`) they
connect to the brokers, and the owner is the broker that leads the group's partition of `__consumer_offsets`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, port_open, wait_until
from tests.matrix.wire import RecordingRoutes

PARTITIONS = 6
TICK_S = 0.1
KNOWN_AFTER_S = 2.0
PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
}
SIDECAR_ENV = {
    "SIDECAR_GROUPS__INCLUDE": '["matrix.*"]',
    "SIDECAR_CONSUMER__MIN_HEARTBEAT_INTERVAL_MS": "500",
    "SIDECAR_CONSUMER__HEARTBEAT_INTERVAL_MS": "500",
    "SIDECAR_METADATA_REFRESH_MS": "500",
}


def java_hash(text: str) -> int:
    """Hash a string as Java does, without the sign, as Kafka places a group."""
    h = 0
    for c in text:
        h = (31 * h + ord(c)) & 0xFFFFFFFF
    return h & 0x7FFFFFFF


class Cluster:
    """Three brokers, with or without sidecars. `direct` may be set on a cluster with sidecars too: the brokers' inner
    listener knows nothing of them, and so the same cluster shows what Kafka itself does with a client."""

    @classmethod
    def of(cls, kafka: LocalKafka) -> Cluster:
        """The same on a cluster that runs already."""
        made = cls.__new__(cls)
        made.direct, made.taps, made.kafka, made._topics = False, None, kafka, {}
        made._connect()
        return made

    def __init__(self, folder: Path, version: str, direct: bool, taps: bool = False) -> None:
        self.direct = direct
        self._topics: dict[str, float] = {}
        """The time at which each topic was made."""
        front = "none" if direct and not taps else "two"
        env = {} if direct else SIDECAR_ENV
        self.kafka = LocalKafka(folder, version=version, front=front, properties=PROPERTIES, sidecar_env=env)
        self.taps = RecordingRoutes((n.sidecar_port, n.clients_port) for n in self.kafka.nodes) if taps else None

    def start(self) -> None:
        self.kafka.start_brokers()
        if self.taps is not None:
            self.taps.start()
        if not self.direct:
            for node in self.kafka.nodes:
                self.kafka.start_sidecar(node)
            self.kafka.wait_ready()
        self._connect()

    def _connect(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.kafka.internal, "log_level": 2})
        self._producer = Producer(
            {
                "bootstrap.servers": self.kafka.internal,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 1000,
            }
        )

    def stop(self) -> None:
        self.kafka.stop()
        if self.taps is not None:
            self.taps.stop()

    @property
    def bootstrap(self) -> str:
        return self.kafka.internal if self.direct and self.taps is None else self.kafka.bootstrap

    def group(self, name: str) -> str:
        """Name a group so that the sidecars manage it, or so that they leave it to the brokers."""
        return f"direct.{name}" if self.direct else f"matrix.{name}"

    def make_topics(self, names: Iterable[str]) -> None:
        new = [n for n in names if n not in self._topics]
        if new:
            for future in self._admin.create_topics([NewTopic(n, PARTITIONS, 3) for n in new]).values():
                future.result(timeout=30)
        self._topics.update(dict.fromkeys(new, time.monotonic()))

    def topic(self, name: str) -> str:
        """Return when the topic has existed for so long that every broker tells of it.

        Clients that are told of a topic while they join rebalance twice, and some get stuck in that on any broker.
        """
        self.make_topics([name])
        time.sleep(max(0.0, KNOWN_AFTER_S - (time.monotonic() - self._topics[name])))
        return name

    def feed(self, topic: str) -> Feed:
        return Feed(self._producer, topic)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return what is committed for the group, asked the way any client asks; nothing if nobody answers now.

        It asks by a consumer: librdkafka 2.16's admin client crashes when the coordinator goes away while it asks.
        """
        asker = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            found = asker.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=5)
        except KafkaException:
            return {}
        finally:
            asker.close()
        return {tp.partition: tp.offset for tp in found if tp.error is None and tp.offset >= 0}

    def at_brokers(self, group: str, client: str) -> bool:
        """Return whether the brokers coordinate a member of this client, which sidecars should have kept from them.

        A group may be there without one: sidecars keep a placeholder of their own in it, for its offsets.
        """
        found = self._admin.list_consumer_groups(request_timeout=10).result(timeout=15)
        if found.errors:
            raise DrillError(f"the brokers do not list their groups: {found.errors[0]}")
        kind = next((g.type.name for g in found.valid if g.group_id == group), None)
        if kind not in ("CLASSIC", "UNKNOWN"):  # brokers before 3.8 tell no kind, and have no other
            return kind is not None
        there = self._admin.describe_consumer_groups([group], request_timeout=10)[group].result(timeout=15)
        return any(m.client_id.startswith(client) for m in there.members)

    # ---- the owner of a group -----------------------------------------------------------------------------
    def owner(self, group: str) -> Broker:
        if not self.direct:
            return self.kafka.owner_of(group)
        partitions = self._admin.list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"].partitions
        leader = partitions[java_hash(group) % len(partitions)].leader
        return next(n for n in self.kafka.nodes if n.node_id == leader)

    def kill(self, owner: Broker) -> None:
        victim = owner.process if self.direct else owner.sidecar
        assert victim is not None
        victim.kill()
        if not self.direct:
            owner.sidecar = None

    def revive(self, owner: Broker) -> None:
        if self.direct:
            self.kafka.start_broker(owner)
        else:
            self.kafka.start_sidecar(owner)

    def settle(self) -> None:
        """Wait until everything that was killed serves again."""
        if not self.direct:
            self.kafka.wait_ready()
            return
        nodes = self.kafka.nodes
        wait_until("the brokers", lambda: all(port_open(n.clients_port) for n in nodes), 60)

        def all_in_sync() -> bool:
            topic = self._admin.list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"]
            return all(len(p.isrs) == len(nodes) for p in topic.partitions.values())

        wait_until("the replicas to be in sync", all_in_sync, 60, step_s=0.5)


class Feed:
    """Produces a record to every partition of a topic at a steady pace, and counts what was acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._stop = threading.Event()
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        """By partition, the offset after the last acknowledged record."""
        self._thread = threading.Thread(target=self._run, name=f"feed-{topic}", daemon=True)

    def start(self) -> Feed:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def _acknowledged(self, error: KafkaError | None, m: Message) -> None:
        p, offset = m.partition(), m.offset()
        if error is None and p is not None and offset is not None:
            self.ends[p] = max(self.ends[p], offset + 1)

    def _run(self) -> None:
        n = 0
        while not self._stop.is_set():
            for p in range(PARTITIONS):
                self._producer.produce(self._topic, value=str(n), partition=p, on_delivery=self._acknowledged)
            n += 1
            self._producer.poll(0)
            time.sleep(TICK_S)
        self._producer.flush(50)
