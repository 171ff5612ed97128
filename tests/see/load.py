"""The clients that work while the faults strike: without them boards and alerts would have nothing to look at."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, Producer

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.wire import join_request, owner_node, talk
from tests.see.ground import CLASSIC, MODERN, TOPIC


def consume(kafka: LocalKafka, group: str, protocol: str, stopped: threading.Event) -> None:
    modern = {"group.protocol": "consumer"}
    old = {"group.protocol": "classic", "heartbeat.interval.ms": 500, "session.timeout.ms": 6_000}
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "log_level": 2,
            **(modern if protocol == "consumer" else old),
        }
    )
    consumer.subscribe([TOPIC])
    while not stopped.is_set():
        consumer.poll(0.2)
    consumer.close()


def produce(kafka: LocalKafka, stopped: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": kafka.internal, "log_level": 2})
    sent = 0
    while not stopped.wait(0.05):
        sent += 1
        producer.produce(TOPIC, str(sent).encode(), partition=sent % 6)
        producer.poll(0)
    producer.flush(10)


def visit(kafka: LocalKafka, stopped: threading.Event) -> None:
    """A new group forms and ends every few seconds: else there would be no rebalances and no appends to show."""

    async def visit(conn: BrokerConnection, group: str) -> None:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "visitor", [TOPIC]))
        for _ in range(3):
            beat = ch.ConsumerGroupHeartbeatRequest(group, "visitor", max(res.member_epoch, 0))
            res = await conn.request(ch, "ConsumerGroupHeartbeat", beat)
            await asyncio.sleep(0.3)
        await conn.request(ch, "ConsumerGroupHeartbeat", ch.ConsumerGroupHeartbeatRequest(group, "visitor", -1))

    visits = 0
    while not stopped.wait(2):
        visits += 1
        group = f"managed-visit-{visits}"
        try:
            talk(kafka, partial(visit, group=group), owner_node(kafka, group))
        except (ConnectionLost, TimeoutError, DrillError, OSError):
            continue  # its sidecar is the one to which something happens


@contextmanager
def load(kafka: LocalKafka) -> Iterator[None]:
    stopped = threading.Event()
    work: list[Callable[[], None]] = [partial(produce, kafka, stopped), partial(visit, kafka, stopped)]
    for group, protocol in ((MODERN, "consumer"), (CLASSIC, "classic")):
        work += [partial(consume, kafka, group, protocol, stopped)] * 2
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join(timeout=30)
